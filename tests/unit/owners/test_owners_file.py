"""The file of the table: what is wrong is said with its place, and what is expected there."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.owners.owner_table import MOST_OWNERS, MOST_PATTERNS, owners_of, read_owners
from txnwatch.setting_sources import load_settings
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.ownership import FoundBy, OwningTeam, Subject

ENTRY = """
[[owner]]
team = "checkout"
name = "Checkout"
contact = "#checkout-oncall"
url = "https://backstage.example/catalog/default/group/checkout"
ref = "group:default/checkout"
transactional_ids = ["checkout-*", "refunds"]
applications = ["ledger-eos"]
topics = ["payments", "payments.*"]
groups = ["checkout-*"]
"""


def test_an_entry_has_everything_that_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "owners.toml"
    file.write_text(ENTRY)
    table = read_owners(file)
    assert table.of(Subject("checkout-7")).owner == OwningTeam(
        team="checkout",
        name="Checkout",
        contact="#checkout-oncall",
        url="https://backstage.example/catalog/default/group/checkout",
        ref="group:default/checkout",
        found_by=FoundBy.TRANSACTIONAL_ID,
    )
    assert table.of_group("checkout-web") is not None
    assert table.of(Subject(None, "payments.eu")).owner is not None
    assert table.find(FoundBy.APPLICATION, "ledger-eos") is not None


def test_a_team_without_a_name_is_shown_by_its_team() -> None:
    owner = owners_of({"owner": [{"team": "money", "topics": ["*"]}]}, "file").of(Subject(None, "any")).owner
    assert owner is not None
    assert (owner.name, owner.whom_to_call) == ("money", "money")


def test_without_a_file_nobody_owns_anything() -> None:
    assert read_owners(None).of(Subject("checkout-7", "payments")).owner is None


def one(**changes: object) -> dict[str, object]:
    return {"owner": [{"team": "checkout", **changes}]}


WRONG = {
    "a capital": (one(team="Checkout"), "entry 1 ('Checkout'): team: expected small letters, digits and hyphens"),
    "too long": (one(team="a" * 64), "team: expected small letters"),
    "a line end": (one(team="checkout\n"), "team: expected small letters"),
    "the label of no owner": (one(team="none"), "team: expected another name: none is the label"),
    "no team": ({"owner": [{"topics": ["a"]}]}, "entry 1: team: expected a value, found none"),
    "an unknown key": (
        one(topic=["a"]),
        "unknown key 'topic'; known keys: team, name, contact, url, ref, chat, phone, dashboard, ",
    ),
    "no list": (one(topics="a"), "topics: expected a list of texts, found 'a'"),
    "a number": (one(topics=[1]), "topics.0: expected a valid string, found '1'"),
    "an empty pattern": (one(topics=[""]), "topics.0: expected a text that is not empty"),
    "a star inside": (one(topics=["a*b"]), "topics.0: expected a name, or the beginning of a name and one star"),
    "two stars": (one(topics=["a**"]), "topics.0: expected a name, or the beginning"),
    "a script": (one(url="javascript:alert(1)"), "url: expected an address that begins with https:// or http://"),
    "no host": (one(url="https://"), "url: expected an address"),
    "a script for the chat": (one(chat="javascript:alert(1)"), "chat: expected an address"),
    "a phone with a scheme": (one(phone="tel:+49"), "phone: expected a phone number"),
    "a phone with a word": (one(phone="+49 30 x"), "phone: expected a phone number"),
    "a dashboard without a time": (one(dashboard="https://g/d"), "dashboard: expected an address with {from}"),
    "a dashboard with another place": (one(dashboard="https://g/{from}{x}"), "dashboard: expected an address with"),
    "a time in the host": (one(dashboard="https://g{from}/{to}"), "for the times behind its host"),
    "a script for the dashboard": (one(dashboard="javascript:{from}"), "dashboard: expected an address that begins"),
    "a space": (one(url="https://a b"), "url: expected an address"),
    "a long contact": (one(contact="a" * 201), "contact: expected at most 200 characters"),
    "the same team twice": (
        {"owner": [{"team": "a"}, {"team": "a"}]},
        "entry 2 ('a'): team 'a': expected it in one entry",
    ),
    "the same pattern twice": (
        {"owner": [{"team": "a", "topics": ["x*"]}, {"team": "b", "topics": ["x*"]}]},
        "entry 2 ('b'): topics 'x*': expected it in one entry, found it in entry 1 ('a') as well",
    ),
    "another key": ({"owners": []}, "expected [[owner]] entries, found the key 'owners'"),
    "one table": ({"owner": {"team": "a"}}, "expected [[owner]] entries, found one value under 'owner'"),
    "no table": ({"owner": ["a"]}, "entry 1: expected a table with keys, found 'a'"),
    "too many": ({"owner": [{"team": "a"}] * (MOST_OWNERS + 1)}, "expected at most 1000 entries, found 1001"),
    "too many patterns": (
        one(topics=[str(number) for number in range(MOST_PATTERNS + 1)]),
        "expected at most 10000 patterns, found 10001",
    ),
}


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG.keys())
def test_an_error_has_the_file_the_entry_and_what_is_expected(content: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        owners_of(content, "owners_file /etc/owners.toml")
    assert str(raised.value).startswith("owners_file /etc/owners.toml: ")
    assert message in str(raised.value)


def test_the_same_pattern_may_be_of_different_kinds() -> None:
    table = owners_of({"owner": [{"team": "a", "topics": ["x"]}, {"team": "b", "groups": ["x"]}]}, "file")
    assert [table.find(what, "x") is not None for what in (FoundBy.TOPIC, FoundBy.GROUP)] == [True, True]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"owner = [", "expected TOML"), (b"\xff", "TOML")]
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "owners.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_owners(file)


def test_the_settings_file_may_have_the_entries(tmp_path: Path) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text(f'bootstrap_server = "b:1"\ntopics = "orders"\nhttp_port = 1\n{ENTRY}')
    settings = load_settings({}, file, {})
    assert settings.owners_file == file
    assert read_owners(settings.owners_file).of(Subject("refunds")).owner is not None
    other = load_settings({"owners_file": "/other.toml"}, file, {})
    assert str(other.owners_file) == "/other.toml"


def test_a_settings_file_has_the_entries_or_names_their_file(tmp_path: Path) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text(f'bootstrap_server = "b:1"\nowners_file = "/etc/owners.toml"\n{ENTRY}')
    with pytest.raises(ConfigError, match=r"expected owners_file or .*entries, found both"):
        load_settings({}, file, {})
