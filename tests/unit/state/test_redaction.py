"""No form of a URL and no assignment in a text shows a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.state.text import (
    REDIS_URL_RULE,
    REGISTRY_URL_RULE,
    is_secret_name,
    redacted,
    shown_place,
    shown_url,
    without_credentials,
)

SECRET = "kanarienvogel"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://redis:6379/0", "redis://redis:6379/0"),
        (f"redis://:{SECRET}@redis:6379/0", "redis://***@redis:6379/0"),
        (f"redis://user:{SECRET}@redis:6379/0", "redis://***@redis:6379/0"),
        (f"redis://redis:6379/0?password={SECRET}", "redis://redis:6379/0?***"),
        (f"rediss://[::1]:6379/0?db=1&password={SECRET}", "rediss://[::1]:6379/0?***"),
        (f"unix://:{SECRET}@/run/redis.sock?db=1", "unix://***@/run/redis.sock?***"),
        (f"redis://:{SECRET}/@{SECRET}@redis:6379/0", "redis://***@redis:6379/0"),
        (f"redis://:{SECRET}?{SECRET}@redis:6379/0", "redis://***"),
        (f"redis://redis:6379/0?password={SECRET}@{SECRET}", "redis://***"),
        (f"redis://redis:6379/0#{SECRET}", "redis://redis:6379/0?***"),
        (f"redis://:{SECRET}", "redis://***"),
        (f"redis+cluster://u:{SECRET}@h1:1,h2:2", "redis+cluster://***@h1:1,h2:2"),
        (f"redis+sentinel://:{SECRET}@h1:1,h2:2/name/0?x={SECRET}", "redis+sentinel://***@h1:1,h2:2/name/0?***"),
        (f"redis+cluster://:{SECRET},h2:2", "redis+cluster://***"),
        (f"{SECRET}@redis:6379", "***@redis:6379"),
        (f"http://u:{SECRET}@a:1,http://u:{SECRET}@b:2", "http://***@a:1,http://***@b:2"),
        (f"http://u:{SECRET},x@a:1", "http://***@a:1"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_the_place_of_a_url_is_a_label() -> None:
    assert shown_place(f"redis://user:{SECRET}@redis:6379/0?password={SECRET}") == "redis:6379/0"
    assert shown_place("redis://redis:6379/0") == "redis:6379/0"


def test_a_url_without_credentials_still_works() -> None:
    assert without_credentials(f"http://u:{SECRET}@registry:8081/path?x={SECRET}") == "http://registry:8081/path"
    assert without_credentials(f"http://u:{SECRET}@a:1,http://b:2") == "http://a:1,http://b:2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"cannot reach http://u:{SECRET}@a:1/x: refused", "cannot reach http://***@a:1/x: refused"),
        (f"ssl.key.password={SECRET} is wrong", "ssl.key.password=*** is wrong"),
        (f'module username="a" password="{SECRET} {SECRET}";', 'module username="a" password=***;'),
        (f"{{'sasl.password': '{SECRET}', 'x': 1}}", "{'sasl.password': ***, 'x': 1}"),
        (f'{{"basic.auth.user.info": "u:{SECRET}"}}', '{"basic.auth.user.info": ***}'),
        (f"spark.authenticate.secret={SECRET}", "spark.authenticate.secret=***"),
        (f"Authorization: Basic {SECRET}==", "Authorization: Basic ***"),
        (f"checkpoint s3a://KEY:{SECRET}@bucket/path", "checkpoint s3a://***@bucket/path"),
    ],
)
def test_free_text_is_shown_without_secrets(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        f"redis_url: expected {REDIS_URL_RULE}, found 'x'",
        f"expected {REGISTRY_URL_RULE} of a registry",
        'sasl.jaas.config: expected a login module with username="..." and password="..."',
        "metrics at http://127.0.0.1:9464/metrics",
        "password: expected a value, found none",
        "checkpoint /data/@home?/x",
    ],
)
def test_our_own_messages_stay_readable(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("sasl.jaas.config", True),
        ("ssl.key.password", True),
        ("schema.registry.basic.auth.user.info", True),
        ("ssl.keystore.key", True),
        ("fs.azure.account.key.store.dfs.core.windows.net", True),
        ("fs.azure.sas.container.store.blob.core.windows.net", True),
        ("fs.gs.auth.service.account.private.key", True),
        ("fs.s3a.encryption.key", True),
        ("fs.s3a.bucket.events.secret.key", True),
        ("fs.s3a.endpoint", False),
        ("ssl.keystore.location", False),
        ("sasl.mechanism", False),
        ("bootstrap.servers", False),
    ],
)
def test_names_of_secrets(name: str, is_secret: bool) -> None:  # noqa: FBT001 - a column of the table
    assert is_secret_name(name) is is_secret


@given(
    before=st.text(alphabet="ab:/@?#%&=[],. ", max_size=6),
    after=st.text(alphabet="ab:/@?#%&=[],. ", max_size=6),
    form=st.sampled_from(
        ["redis://{}@h:1/0", "redis://:{}@h:1/0", "redis://u:{}@h/0?db=1", "redis://h:1/0?password={}", "{}@h:1"]
    ),
)
def test_no_password_in_any_place_of_a_url_is_shown(before: str, after: str, form: str) -> None:
    url = form.format(f"{before}{SECRET}{after}")
    assert SECRET not in shown_url(url)
    assert SECRET not in shown_place(url)
    assert SECRET not in without_credentials(url)
