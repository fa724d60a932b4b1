"""The table of owners: which entry a name leads to."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.owners.owner_table import OwnerTable, Patterns, TeamEntry
from txnwatch.state.model.ownership import FoundBy, Subject

UUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"


def table(**patterns: dict[str, str]) -> OwnerTable:
    """A table from pattern to team, by kind of name."""
    return OwnerTable(
        {
            FoundBy(what): {pattern: TeamEntry(team, team.title()) for pattern, team in teams.items()}
            for what, teams in patterns.items()
        }
    )


WHOLE = table(
    transactional_id={
        "checkout-*": "checkout",
        "checkout-eu-*": "europe",
        "checkout-eu-1": "one",
        "refunds": "money",
    },
    application={"ledger-eos": "ledger", "refunds": "wrong"},
    topic={"payments": "payments", "payments.*": "payments", "audit-*": "audit"},
    group={"fraud-*": "risk"},
)
FOUND = {
    "a prefix": (Subject("checkout-7"), "checkout", FoundBy.TRANSACTIONAL_ID),
    "the longest prefix": (Subject("checkout-eu-7"), "europe", FoundBy.TRANSACTIONAL_ID),
    "a literal before a prefix": (Subject("checkout-eu-1"), "one", FoundBy.TRANSACTIONAL_ID),
    "a literal is the whole name": (Subject("refunds2"), None, None),
    "the prefix itself": (Subject("checkout-"), "checkout", FoundBy.TRANSACTIONAL_ID),
    "less than the prefix": (Subject("checkout"), None, None),
    "the id before the topic": (Subject("refunds", "payments"), "money", FoundBy.TRANSACTIONAL_ID),
    "the topic of the partition": (Subject("unknown", "payments.eu"), "payments", FoundBy.TOPIC),
    "no id, but a topic": (Subject(None, "audit-1"), "audit", FoundBy.TOPIC),
    "another participant does not count": (Subject("unknown", "orders", frozenset({"payments"})), None, None),
    "an application that is certain": (
        Subject(f"ledger-eos-{UUID}-1", "payments", groups=frozenset({"ledger-eos"})),
        "ledger",
        FoundBy.APPLICATION,
    ),
    "a guessed application does not count": (Subject(f"ledger-eos-{UUID}-1", "payments"), "payments", FoundBy.TOPIC),
    "nothing is an answer": (Subject("x"), None, None),
    "nothing at all": (Subject(None), None, None),
}


@pytest.mark.parametrize(("subject", "team", "found_by"), FOUND.values(), ids=FOUND.keys())
def test_the_first_name_with_an_entry_counts(subject: Subject, team: str | None, found_by: FoundBy | None) -> None:
    owner, _ = WHOLE.of(subject)
    assert (owner.team if owner is not None else None, owner.found_by if owner is not None else None) == (
        team,
        found_by,
    )


def test_a_group_is_found_by_the_patterns_of_groups_alone() -> None:
    owner = WHOLE.of_group("fraud-scoring")
    assert owner is not None
    assert (owner.team, owner.found_by) == ("risk", FoundBy.GROUP)
    assert WHOLE.of_group("checkout-7") is None


def test_tables_with_the_same_content_are_equal() -> None:
    assert table(topic={"a": "one"}) == table(topic={"a": "one"})
    assert table(topic={"a": "one"}) != table(topic={"a": "two"})


NAMES = st.text("ab", max_size=6)


@given(st.dictionaries(st.builds(lambda name, star: name + star, NAMES, st.sampled_from(["", "*"])), NAMES), NAMES)
def test_the_search_finds_what_trying_every_pattern_finds(teams: dict[str, str], name: str) -> None:
    entries = {pattern: TeamEntry(team, team) for pattern, team in teams.items()}
    fits = [one for one in teams if one == name or (one.endswith("*") and name.startswith(one[:-1]))]
    best = max(fits, key=lambda one: (not one.endswith("*"), len(one)), default=None)
    match = Patterns(entries).find(name)
    assert (match.pattern if match is not None else None) == best


def test_a_look_up_in_ten_thousand_patterns_is_quick() -> None:
    prefixes = {f"team-{number}-*": "one" for number in range(10_000)}
    patterns = Patterns({pattern: TeamEntry(team, team) for pattern, team in prefixes.items()})
    begun_s = time.process_time()
    for number in range(1_000):
        assert patterns.find(f"team-{number}-x") is not None
    assert time.process_time() - begun_s < 0.2  # 0.002 s; trying every pattern takes a second
