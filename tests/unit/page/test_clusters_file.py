"""The file of the clusters: what is wrong is said with its place, and a secret is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.page.clusters import MOST_CLUSTERS, SHARED, ClusterEntry, read_clusters
from txnwatch.state.model.errors import ConfigError

ENTRY = '[[cluster]]\nname = "eu"\nbootstrap_server = "kafka-1:9092"\n'
WHOLE = f"""{ENTRY}command_config = "/etc/txnwatch/client.properties"
events_topic = "ops.events"
schema_registry_url = "https://user:secret@registry"
events_key_file = "/etc/txnwatch/keys"
redis_url = "redis://:secret@redis-1:6379/0"
watcher_url = "https://watch.example/"
"""


def read(tmp_path: Path, text: str) -> list[ClusterEntry]:
    file = tmp_path / "clusters.toml"
    file.write_text(text)
    return list(read_clusters(file))


def test_an_entry_has_everything_that_is_in_the_file(tmp_path: Path) -> None:
    (found,) = read(tmp_path, WHOLE)
    assert (found.name, found.bootstrap_server, found.events_topic) == ("eu", "kafka-1:9092", "ops.events")
    assert (found.events_key_file, found.watcher_url) == (Path("/etc/txnwatch/keys"), "https://watch.example/")
    assert "secret" not in repr(found)
    (short,) = read(tmp_path, ENTRY)
    assert (short.events_topic, short.redis_url) == ("txnwatch.events", None)


def test_the_keys_are_settings_of_run() -> None:
    assert set(ClusterEntry.model_fields) - set(SHARED) == {"name", "watcher_url"}


def test_a_secret_can_be_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_WORD", "sec/ret")
    (found,) = read(tmp_path, ENTRY + 'redis_url = "redis://:${env:REDIS_WORD}@redis-1:6379/0"\n')
    assert found.redis_url == "redis://:sec%2Fret@redis-1:6379/0"


WRONG = {
    "no TOML": ("a b", "expected TOML"),
    "nothing": ("", r"expected \[\[cluster\]\] entries, found none"),
    "another key": (f"http_port = 1\n{ENTRY}", "expected .* entries, found the key 'http_port'"),
    "a value": ("cluster = 7", r"expected \[\[cluster\]\] entries, found none"),
    "no table": ("cluster = [7]", "entry 1: expected a table with keys"),
    "no name": ('[[cluster]]\nbootstrap_server = "a:1"', "entry 1: name: expected a value, found none"),
    "a name": (ENTRY.replace("eu", "e u"), "entry 1: name: expected a-z"),
    "a name that is a path": (ENTRY.replace("eu", ".."), "entry 1: name: expected a-z"),
    "a server": (ENTRY.replace("kafka-1:9092", "kafka-1"), "entry 1: bootstrap_server: expected host:port"),
    "a topic": (f'{ENTRY}events_topic = "a b"', "entry 1: events_topic: expected a topic's name"),
    "a Redis": (f'{ENTRY}redis_url = "secret"', "entry 1: redis_url: expected redis://"),
    "an address": (f'{ENTRY}watcher_url = "javascript:secret"', "entry 1: watcher_url: expected an address"),
    "a number": (ENTRY.replace('"eu"', "7"), "entry 1: name: expected another value"),
    "an unknown key": (f'{ENTRY}topic = "secret"', "entry 1: unknown key 'topic'; known keys: name, bootstrap_server"),
    "twice": (ENTRY * 2, "expected a name of its own for each cluster, found eu twice"),
    "a missing variable": (f'{ENTRY}redis_url = "${{env:NOT_THERE}}"', "environment variable NOT_THERE"),
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
