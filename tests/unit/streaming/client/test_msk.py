"""Tokens for Amazon MSK: the vendor's signer signs the request that AWS documents, and SASL carries it.

There is no broker of MSK in a test. The signature is computed a second time, by steps that two published vectors of AWS
verify: one for the signing key, one for a presigned request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from txnwatch.librdkafka import librdkafka_config
from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.security import TokenLogin
from txnwatch.streaming.client.tokens import MskIam
from txnwatch.streaming.source.options import parse_options

pytest.importorskip("aws_msk_iam_sasl_signer")
EMPTY = hashlib.sha256(b"").hexdigest()
KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
REGION, HOST = "us-west-2", "b-1.x.c2.kafka.us-west-2.amazonaws.com"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return


def mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signing_key(secret: str, *scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = mac(key, part)
    return key


def signature(url: str, secret: str, payload: str = EMPTY) -> str:
    """The signature of a presigned GET request; a signature that the URL has is left out."""
    parts = urlsplit(url)
    values = {name: value for name, value in parse_qsl(parts.query) if name != "X-Amz-Signature"}
    _, *scope = values["X-Amz-Credential"].split("/")
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(values[name], safe='-_.~')}" for name in sorted(values))
    request = "\n".join(("GET", parts.path, query, f"host:{parts.netloc}", "", "host", payload))
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", values["X-Amz-Date"], "/".join(scope), digest))
    return mac(signing_key(secret, *scope), text).hex()


def test_the_signature_is_that_of_the_published_vector() -> None:
    url = (
        "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    )
    found = signature(url, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "UNSIGNED-PAYLOAD")
    assert found == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


def test_the_signing_key_is_that_of_the_published_vector() -> None:
    found = signing_key(SECRET, "20150830", "us-east-1", "iam", "aws4_request")
    assert found.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


def test_a_token_is_the_signed_request_to_connect() -> None:
    token = MskIam(REGION).fetch()
    text = base64.urlsafe_b64decode(token.text + "=" * (-len(token.text) % 4)).decode()
    signed, _, user_agent = text.partition("&User-Agent=")  # the signer adds it after the signature
    assert user_agent.startswith("aws-msk-iam-sasl-signer-python%2F")
    url = urlsplit(signed)
    values = dict(parse_qsl(url.query))
    assert (url.scheme, url.netloc, url.path) == ("https", f"kafka.{REGION}.amazonaws.com", "/")
    assert values["Action"] == "kafka-cluster:Connect"
    assert values["X-Amz-Credential"] == f"{KEY_ID}/{values['X-Amz-Date'][:8]}/{REGION}/kafka-cluster/aws4_request"
    assert values["X-Amz-Signature"] == signature(signed, SECRET)
    assert token.expires_s == pytest.approx(time.time() + 900, abs=5)
    assert SECRET not in url.query


def test_both_connections_send_the_token_as_oauthbearer() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": f"{HOST}:9098",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "AWS_MSK_IAM",
            "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "subscribePattern": ".*",
        }
    )
    login = options.security.login
    assert login == TokenLogin(MskIam(REGION))
    assert login.mechanism == "OAUTHBEARER"
    sent = login.exchange(HOST, "SASL_SSL").auth_bytes().decode()
    config = librdkafka_config(options)
    token, expires_s, _, extensions = config["oauth_cb"]("")
    assert sent == f"n,,\x01auth=Bearer {token}\x01\x01"
    assert config["sasl.mechanism"] == "OAUTHBEARER"
    assert (extensions, expires_s > time.time()) == ({}, True)


def test_missing_credentials_are_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, f"{tmp_path}/none")
    with pytest.raises(BrokerError, match=r"AWS_MSK_IAM of the AWS credentials: .*, found: no credentials"):
        MskIam(REGION).fetch()


def test_a_profile_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(BrokerError, match=r"of the AWS profile nobody's: .* profile"):
        MskIam(REGION, profile="nobody's").fetch()
