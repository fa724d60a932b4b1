"""What `txnwatch audit` answers, from the facts of a cluster: its exit code, and what was not checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Never
from unittest import mock

import pytest

from support.audited import facts, topic
from txnwatch.cli import audit, events_access
from txnwatch.cli.main import main
from txnwatch.cli.output import CommandAnswer
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.streaming.client.security import Security

WARNED = facts(topic(replicas=[2]))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandAnswer]:
    """Runs the command without a broker."""
    found: list[CommandAnswer] = []

    def ask(_: Any, made: Callable[[Any], CommandAnswer]) -> int:
        found.append(made(SimpleNamespace(security=Security(), known=SimpleNamespace(cluster_id="c"))))
        return 0

    monkeypatch.setattr(audit, "ask", ask)
    monkeypatch.setattr(audit, "gather", lambda *_: WARNED)

    def run(*flags: str) -> CommandAnswer:
        assert main(["audit", "-b", "a:1", *flags]) == 0
        return found[-1]

    return run


@pytest.mark.parametrize(
    ("flags", "is_found"),
    [
        (("--fail-on", "warn"), True),
        (("--fail-on", "critical"), False),
        (("--fail-on", "warn", "--min-severity", "critical"), True),
        (("--fail-on", "warn", "--ignore", "replication", "--ignore", "epoch-bugs"), False),
    ],
)
def test_what_is_only_not_shown_counts_for_the_exit_code(
    answer: Callable[..., CommandAnswer], flags: tuple[str, ...], is_found: object
) -> None:
    assert answer(*flags).found is is_found


@pytest.mark.usefixtures("answer")
def test_wrong_settings_of_the_events_topic_end_the_command_before_the_cluster_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "gather", lambda *_: pytest.fail("the cluster was read"))
    monkeypatch.setattr(events_access, "read_events_topic", mock.Mock(side_effect=ConfigError("it has no key")))
    assert main(["audit", "-b", "a:1", "--incidents"]) == 2
    assert "it has no key" in capsys.readouterr().err


def test_if_the_events_topic_cannot_be_read_the_findings_are_shown(
    answer: Callable[..., CommandAnswer], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = BrokerError("topic txnwatch.events does not exist")

    def read(_: object) -> Iterator[Never]:
        raise problem
        yield

    monkeypatch.setattr(events_access, "read_events_topic", read)
    shown = answer("--incidents")
    assert [row.check for row in shown.rows] == [row.check for row in answer().rows]
    assert [(unread.what, unread.why) for unread in shown.not_checked] == [("incidents of the last week", str(problem))]
    assert {row.incidents for row in shown.rows} == {None}
