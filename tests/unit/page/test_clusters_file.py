"""The clusters of a page, from a file and from flags: what is wrong is said with its place, and no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.page.clusters_file import MOST_CLUSTERS, SHARED, ClusterEntry, clusters_of, read_clusters
from txnwatch.state.model.errors import ConfigError

ENTRY = '[[cluster]]\nname = "eu"\nwatchers = ["https://watch-1:9464/"]\n'
WHOLE = f"""{ENTRY}cluster_id = "Qk7rXf2mTtS9"
user = "page"
password_file = "/run/secrets/page"
ca_file = "/etc/txnwatch/ca.pem"
cert_file = "/etc/txnwatch/page.pem"
key_file = "/etc/txnwatch/page.key"
bootstrap_server = "kafka-1:9092"
command_config = "/etc/txnwatch/client.properties"
events_topic = "ops.events"
schema_registry_url = "https://user:secret@registry"
events_key_file = "/etc/txnwatch/keys"
"""
LOGIN = 'user = "page"\npassword_file = "/run/secrets/page"\n'
PLAIN = ENTRY.replace("https", "http")


def read(tmp_path: Path, text: str) -> list[ClusterEntry]:
    file = tmp_path / "clusters.toml"
    file.write_text(text)
    return list(read_clusters(file))


def test_an_entry_has_everything_that_is_in_the_file(tmp_path: Path) -> None:
    (found,) = read(tmp_path, WHOLE)
    assert (found.name, found.watchers, found.cluster_id) == ("eu", ["https://watch-1:9464/"], "Qk7rXf2mTtS9")
    assert (found.user, found.password_file, found.events_topic) == ("page", Path("/run/secrets/page"), "ops.events")
    assert "secret@" not in repr(found)
    (short,) = read(tmp_path, ENTRY)
    assert (short.events_topic, short.bootstrap_server, short.user) == ("txnwatch.events", None, None)


def test_what_the_commands_need_has_the_names_of_the_settings_of_run() -> None:
    assert set(SHARED) == {
        *("bootstrap_server", "command_config", "events_topic", "schema_registry_url", "events_key_file"),
    }


def test_the_facts_are_below_the_address_of_the_watcher(tmp_path: Path) -> None:
    (found,) = read(tmp_path, ENTRY.replace(":9464/", ":9464/eu/"))
    assert [client.address.path for client in found.clients()] == ["/eu/api/v1/facts"]


def test_a_login_may_go_over_http_to_this_machine_or_if_the_entry_says_so(tmp_path: Path) -> None:
    for text in (PLAIN, PLAIN.replace("watch-1", "127.0.0.1") + LOGIN, f"{PLAIN}{LOGIN}allow_plain = true\n"):
        assert len(read(tmp_path, text)) == 1


WRONG = {
    "no TOML": ("a b", "expected TOML"),
    "nothing": ("", r"expected \[\[cluster\]\] entries, found none"),
    "another key": (f"http_port = 1\n{ENTRY}", "expected .* entries, found the key 'http_port'"),
    "a value": ("cluster = 7", r"expected \[\[cluster\]\] entries, found none"),
    "no table": ("cluster = [7]", "entry 1: expected a table with keys"),
    "no name": ('[[cluster]]\nwatchers = ["https://a/"]', "entry 1: name: expected a value, found none"),
    "a name": (ENTRY.replace("eu", "e u"), "entry 1: name: expected a-z"),
    "a name that is a path": (ENTRY.replace("eu", ".."), "entry 1: name: expected a-z"),
    "no watcher": ('[[cluster]]\nname = "eu"', "entry 1: watchers: expected a value, found none"),
    "an empty list": ('[[cluster]]\nname = "eu"\nwatchers = []', "entry 1: watchers: expected another value"),
    "no address": (ENTRY.replace("https://watch-1", "javascript:secret"), "watchers.0: expected https://host:port"),
    "a user in an address": (ENTRY.replace("//watch", "//me:secret@watch"), "watchers.0: expected https://host:port"),
    "a query": (ENTRY.replace("9464/", "9464/?key=secret"), "watchers.0: expected .* without a query"),
    "an address twice": (ENTRY.replace('["', '["https://watch-1:9464/", "'), "watchers: expected each address once"),
    "a user alone": (f'{ENTRY}user = "secret"', "entry 1: expected user and password_file, or neither"),
    "a user with a colon": (f'{ENTRY}user = "a:secret"', "entry 1: user: expected a name without a colon"),
    "a key alone": (f'{ENTRY}key_file = "/a"', "entry 1: expected cert_file and key_file, or neither"),
    "a login over http": (PLAIN + LOGIN, "expected https for the login at watch-1:9464, found http: `allow_plain"),
    "an id": (f'{ENTRY}cluster_id = "a b"', "entry 1: cluster_id: expected another value"),
    "a server": (f'{ENTRY}bootstrap_server = "kafka-1"', "entry 1: bootstrap_server: expected host:port"),
    "a topic": (f'{ENTRY}events_topic = "a b"', "entry 1: events_topic: expected a topic's name"),
    "a number": (ENTRY.replace('"eu"', "7"), "entry 1: name: expected another value"),
    "an unknown key": (f'{ENTRY}topic = "secret"', "entry 1: unknown key 'topic'; known keys: name, watchers"),
    "twice": (ENTRY * 2, "expected a name of its own for each cluster, found eu twice"),
    "a missing variable": (f'{ENTRY}schema_registry_url = "${{env:NOT_THERE}}"', "environment variable NOT_THERE"),
    "too many": (ENTRY * (MOST_CLUSTERS + 1), "expected at most 100 entries, found 101"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str) -> None:
    text, expected = WRONG[name]
    with pytest.raises(ConfigError, match=expected) as found:
        read(tmp_path, text)
    assert str(found.value).startswith(f"--clusters-file {tmp_path}")
    assert "secret" not in str(found.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a file that can be read, found: No such file"):
        read_clusters(tmp_path / "none.toml")


def test_flags_name_clusters_and_several_watchers_of_one() -> None:
    two = ["eu=https://a/", "us=https://b/", "eu=https://c/"]
    assert [(one.name, one.watchers) for one in clusters_of(two, {"bootstrap_server": "k:1"})] == [
        ("eu", ["https://a/", "https://c/"]),
        ("us", ["https://b/"]),
    ]
    (one,) = clusters_of(two[:1], {"bootstrap_server": "k:1"})
    assert one.bootstrap_server == "k:1"


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("https://me:secret@a/", "--watcher: expected NAME=URL, found no '='"),
        ("e u=https://a/", "--watcher: name: expected a-z"),
        ("eu=ftp://secret/", "--watcher: watchers.0: expected https://host"),
    ],
)
def test_a_flag_that_is_wrong_is_said_without_its_value(flag: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as found:
        clusters_of([flag], {})
    assert "secret" not in str(found.value)
