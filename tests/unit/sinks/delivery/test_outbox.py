"""The queues of the topic and of its mirrors: a mirror needs one method, and gets what the topic has taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from support.incidents import an_event
from support.ledger_world import ORIGIN, LedgerWorld
from support.log_lines import LogLines
from support.recording_sink import RecordingMirror
from txnwatch.sinks.delivery.outbox import MirrorOutbox, TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.ledger import TIDY_MS
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent


class Lines:
    """A mirror with nothing but the method that every mirror has."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_away = False

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        if self.is_away:
            raise SinkError("the file is away")
        self.lines += [event.event_id for event in events]


def ledger_of(world: LedgerWorld, mirror: Lines) -> RunningLedger:
    topic = TopicOutbox(world.topic, world.reports)
    mirrors = [MirrorOutbox("file", mirror, world.reports)]
    return RunningLedger(ORIGIN, world.admin, world.groups, topic, lambda: world.now_ms, mirrors=mirrors)


def test_a_mirror_needs_no_method_but_deliver() -> None:
    world, mirror = LedgerWorld(), Lines()
    world.ledger = ledger_of(world, mirror)
    candidate = world.hang()
    world.batch(candidate)
    world.batch(world.abort(candidate))
    world.ledger.fill_mirrors()
    world.batch(after_ms=TIDY_MS)
    ids = [event.event_id for event in world.topic.published]
    assert len(ids) == 2
    assert mirror.lines == [*ids, ids[-1]], "filled again with the latest event of each incident"


def test_a_mirror_gets_an_event_only_after_the_topic_has_taken_it() -> None:
    world, mirror = LedgerWorld(), Lines()
    world.ledger = ledger_of(world, mirror)
    world.topic.is_away = True
    world.batch(world.hang())
    assert mirror.lines == []
    world.topic.is_away = False
    world.batch(after_ms=60_000)
    assert mirror.lines == [event.event_id for event in world.topic.published]
    assert len(mirror.lines) == 1


def test_a_mirror_that_is_away_keeps_nothing_from_the_topic_and_gets_it_later() -> None:
    world, mirror = LedgerWorld(), Lines()
    world.ledger = ledger_of(world, mirror)
    mirror.is_away = True
    world.batch(world.hang())
    assert len(world.topic.published) == 1
    assert [outbox.waiting for outbox in world.ledger.outboxes] == [0, 1]
    mirror.is_away = False
    world.batch(after_ms=60_000)
    assert mirror.lines == [world.topic.published[0].event_id]


def test_only_a_mirror_with_a_view_can_have_lost_everything() -> None:
    mirror = RecordingMirror()
    mirror.is_emptied = True
    assert not MirrorOutbox("recording", mirror, LogLines()).has_lost_everything()
    assert MirrorOutbox("recording", mirror, LogLines(), view=mirror).has_lost_everything()


def test_a_view_forgets_at_most_every_ten_minutes() -> None:
    mirror, asked = RecordingMirror(), []
    outbox = MirrorOutbox("recording", mirror, LogLines(), view=mirror)
    mirror.deliver([an_event()])
    for now_ms in (0, 599_999, 600_000):
        outbox.forget(lambda incident_id: bool(asked.append(incident_id)), now_ms)
    assert len(asked) == 2


class RefusingView:
    """Refuses while `refuses` is set."""

    def __init__(self) -> None:
        self.refuses = True

    def has_lost_everything(self) -> bool:
        if self.refuses:
            raise SinkError("no TIME")
        return True

    def forget(self, has_ended: Callable[[str], bool]) -> None:
        del has_ended
        if self.refuses:
            raise SinkError("no ZREM")


def test_a_view_that_refuses_is_reported_once_until_it_works() -> None:
    log, view = LogLines(), RefusingView()
    outbox = MirrorOutbox("recording", RecordingMirror(), log, view=view)
    assert [outbox.has_lost_everything() for _ in range(3)] == [False] * 3
    assert len([line for line in log if "no TIME" in line]) == 1
    outbox.forget(lambda _: False, 0)
    assert len([line for line in log if "no ZREM" in line]) == 1
    view.refuses = False
    assert outbox.has_lost_everything()
    view.refuses = True
    assert not outbox.has_lost_everything()
    assert len(log) == 3
