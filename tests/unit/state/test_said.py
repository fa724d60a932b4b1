"""A change is said once, and its end once."""

from __future__ import annotations

from txnwatch.state.text import Said


def test_a_problem_and_its_end_are_said_once() -> None:
    said = Said[str]()
    assert not said.is_over("away"), "nothing was said"
    assert [said.is_new("away") for _ in range(3)] == [True, False, False]
    assert said.problems == {"away"}
    assert [said.is_over("away") for _ in range(2)] == [True, False]
    assert said.is_new("away"), "it has begun again"


def test_what_is_said_about_a_problem_may_change() -> None:
    said = Said[str]()
    assert [said.is_new("clock", ahead) for ahead in (True, True, False, False, True)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert said.is_over("clock")


def test_a_problem_that_does_not_come_again_is_forgotten_when_another_one_begins() -> None:
    said = Said[str](gone_after=100)
    assert [said.is_new("away", "why", now) for now in (0, 50, 149)] == [True, False, False]
    assert said.is_new("slow", "why", 248)
    assert said.problems == {"away", "slow"}, "it came 99 ago"
    assert said.is_new("full", "why", 249)
    assert said.problems == {"slow", "full"}
    assert said.is_new("away", "why", 249), "it has begun again"


def test_without_a_limit_a_problem_is_kept_until_its_end() -> None:
    said = Said[str]()
    assert [said.is_new(problem, None, now) for problem, now in (("away", 0), ("slow", 1e15), ("away", 1e15))] == [
        True,
        True,
        False,
    ]


def test_each_problem_has_its_own_beginning_and_end() -> None:
    said = Said[int]()
    assert said.update([1, 2]) == ({1, 2}, set())
    assert said.update([2, 3]) == ({3}, {1})
    assert said.update([]) == (set(), {2, 3})
    assert said.update([]) == (set(), set())
