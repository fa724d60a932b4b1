"""What a chat gets if one of two instances stops and the other one speaks: each has a position of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_lease import FakeLease
from support.http_receiver import Receiver, Says, receiving
from support.ledger_world import HOUR_MS, LedgerWorld
from support.log_lines import LogLines
from support.shared_log import SharedLog
from support.waiting import eventually
from txnwatch.push.push_file import PushFile, WebhookTarget
from txnwatch.push.targets import PushTargets
from txnwatch.push.webhook import UNSURE_END_MS
from txnwatch.sinks.incidents.group_lease import SpeakerGate
from txnwatch.state.incidents.speaking import SESSION_MS
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.values import DAY_MS

_LONG_S = 10.0
_ROUNDS = 12  # longer than the only instance is silent
OPENED, RESOLVED = "opened", "resolved"
Told = tuple[str, str]


class Chat:
    """A cluster with its events topic, and a receiver that two instances send to."""

    def __init__(self, receiver: Receiver, directory: Path) -> None:
        self.receiver, self.directory = receiver, directory
        self.world, self.log = LedgerWorld(), SharedLog()
        self.running: list[Instance] = []

    def starts(self, name: str, *, speaks: bool = False, ahead_ms: int = 0) -> Instance:
        """A process begins; its position is that of the former process of its name. Its clock may be ahead."""
        instance = Instance(self, name, ahead_ms)
        self.running.append(instance)
        self.passes(0)
        instance.lease.held = speaks
        self.passes(3_000)
        return instance

    def passes(self, by_ms: int, *emitted: Finding) -> None:
        """Time passes, and each instance has a round; in the first minutes it has one in each session."""
        rounds = min(by_ms // SESSION_MS, _ROUNDS)
        for _ in range(rounds):
            self.round(SESSION_MS)
        self.round(by_ms - rounds * SESSION_MS, *emitted)

    def round(self, after_ms: int, *emitted: Finding) -> None:
        self.world.now_ms += after_ms
        for instance in self.running:
            instance.ledger.on_batch(emitted)
        if any(instance.ledger.speaks for instance in self.running):
            for instance in self.running:
                if not instance.ledger.speaks:
                    instance.gate.hear()

    def hang(self, topic: str) -> SpanCandidate:
        (self.world.partition,) = self.world.admin.create_topic(topic)
        candidate = self.world.hang(f"writer of {topic}")
        self.passes(500, candidate)
        return candidate

    def end(self, candidate: SpanCandidate) -> None:
        self.passes(500, self.world.abort(candidate))

    def told(self) -> list[Told]:
        """What the receiver has taken since the last call, once nothing waits."""
        for instance in self.running:
            eventually(lambda: instance.hook.waiting == 0, _LONG_S, "an empty queue")  # noqa: B023 - called at once
        taken, self.receiver.taken = self.receiver.taken, []
        events = [json.loads(request.body)["data"] for request in taken]
        return [(event["topic"], event["status"]) for event in events]


class Instance:
    """A ledger, its lease, and its targets."""

    def __init__(self, chat: Chat, name: str, ahead_ms: int) -> None:
        self.chat, self.lease, world = chat, FakeLease(), chat.world
        self.lease.held = False
        directory = self.directory = chat.directory / name
        directory.mkdir(exist_ok=True)
        file = PushFile(webhook=[WebhookTarget(name="chat", url=chat.receiver.url)])
        self.targets = PushTargets(file, directory, lambda: world.now_ms + ahead_ms, LogLines())
        self.targets.may_send = lambda: False
        self.targets.start()
        (self.hook,) = self.targets.queues
        self.gate = SpeakerGate(self.lease, FakeLease, world.reports.append, lambda: world.now_ms / 1000)
        mirrors = self.targets.queues
        self.ledger = world.another(chat.log, role=self.gate.role, name=name, mirrors=mirrors, ahead_ms=ahead_ms)
        list(self.targets.seen(chat.log.records, world.origin))
        self.goes_on()

    def goes_on(self) -> None:
        self.targets.may_send = lambda: self.ledger.speaks

    def pauses(self) -> None:
        """As by SIGSTOP."""
        self.chat.running.remove(self)
        self.targets.may_send = lambda: False
        self.hook.put([])

    def stops(self) -> None:
        """Whether by SIGTERM or by SIGKILL: what is not delivered stays so."""
        self.chat.running.remove(self)
        self.targets.stop()

    def speaks(self, after_ms: int = 500) -> None:
        """The lease comes."""
        self.chat.passes(after_ms)
        self.lease.held = True
        self.chat.passes(0)


def _floor_ms(journal: Path) -> int:
    return max(value for key, value in map(json.loads, journal.read_text().splitlines()) if key == "floor")


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    with receiving() as receiver:
        a_chat = Chat(receiver, tmp_path)
        yield a_chat
        for instance in [*a_chat.running]:
            instance.stops()


@pytest.fixture
def two(chat: Chat) -> tuple[Instance, Instance]:
    """One that speaks, and one that has been silent for long."""
    pair = chat.starts("one", speaks=True), chat.starts("two")
    chat.passes(HOUR_MS)
    return pair


def does_not_answer(chat: Chat, instance: Instance) -> None:
    """The receiver answers with an error, also to the next attempt."""
    before = instance.hook.failures
    chat.receiver.usually = lambda _: Says(503)
    chat.hang("unheard")
    eventually(lambda: instance.hook.failures > before, _LONG_S, "a failed attempt")


def answers(chat: Chat) -> None:
    chat.receiver.usually = lambda _: Says()


def test_an_opening_that_the_killed_speaker_had_not_pushed_is_told_once(
    chat: Chat, two: tuple[Instance, Instance]
) -> None:
    one, other = two
    does_not_answer(chat, one)
    one.stops()
    answers(chat)
    other.speaks(after_ms=10_000)
    assert chat.told() == [("unheard", OPENED)]
    chat.passes(HOUR_MS)
    assert chat.told() == []


@pytest.mark.parametrize("ahead_ms", [-300_000, 300_000])
def test_an_end_that_the_killed_speaker_had_not_pushed_is_told_although_the_clocks_are_apart(
    chat: Chat, ahead_ms: int
) -> None:
    one, other = chat.starts("one", speaks=True), chat.starts("two", ahead_ms=ahead_ms)
    chat.passes(HOUR_MS)
    candidate = chat.hang("over")
    assert chat.told() == [("over", OPENED)]
    does_not_answer(chat, one)
    chat.end(candidate)
    one.stops()
    answers(chat)
    other.speaks(after_ms=10_000)
    assert sorted(chat.told()) == [("over", RESOLVED), ("unheard", OPENED)]


def test_after_an_orderly_hand_over_the_open_incident_and_a_young_end_are_told_again(
    chat: Chat, two: tuple[Instance, Instance]
) -> None:
    one, other = two
    old, young, _ = (chat.hang(topic) for topic in ("old", "young", "open"))
    chat.end(old)
    chat.passes(UNSURE_END_MS)
    chat.end(young)
    assert len(chat.told()) == 5
    one.stops()
    other.speaks()
    assert sorted(chat.told()) == [("open", OPENED), ("young", RESOLVED)]
    again = chat.starts("one")
    chat.passes(HOUR_MS)
    other.stops()
    again.speaks()
    assert chat.told() == [], "it has told the opening itself"


def test_a_silent_instance_that_was_restarted_tells_only_what_is_open_a_day_later(
    chat: Chat, two: tuple[Instance, Instance]
) -> None:
    one, other = two
    other.stops()
    over = chat.hang("over")
    chat.hang("open")
    chat.end(over)
    other = chat.starts("two")
    assert len(chat.told()) == 3
    assert (other.hook.waiting, other.hook.tally.oldest_ms) == (0, None)
    chat.passes(DAY_MS)
    one.stops()
    other.speaks()
    assert chat.told() == [("open", OPENED)]
    other.stops()
    chat.starts("two", speaks=True)
    assert chat.told() == [], "its position knows of the hand-over"


def test_a_silent_instance_that_takes_over_right_after_its_restart_tells_only_what_is_open(
    chat: Chat, two: tuple[Instance, Instance]
) -> None:
    """As in a rolling upgrade: what the other one has told in the days before is not told again."""
    one, other = two
    chat.hang("open")
    chat.end(chat.hang("over"))
    for day in range(3):
        chat.passes(HOUR_MS)
        chat.end(chat.hang(f"over {day}"))
    chat.passes(HOUR_MS)
    told = [("open", OPENED), ("over", OPENED), ("over", RESOLVED)]
    assert chat.told() == [*told, *((f"over {day}", status) for day in range(3) for status in (OPENED, RESOLVED))]
    written = other.directory / "txnwatch-push-chat.jsonl"
    eventually(lambda: _floor_ms(written) > chat.world.now_ms - HOUR_MS, _LONG_S, "the floor to be written")
    other.stops()
    other = chat.starts("two")
    one.stops()
    other.speaks()
    assert chat.told() == [("open", OPENED)]


def test_an_end_that_the_other_one_has_told_is_not_told_after_a_restart_either(
    chat: Chat, two: tuple[Instance, Instance]
) -> None:
    one, other = two
    candidate = chat.hang("over")
    assert chat.told() == [("over", OPENED)]
    one.lease.held = False
    other.speaks()
    assert chat.told() == [("over", OPENED)]
    chat.end(candidate)
    assert chat.told() == [("over", RESOLVED)]
    chat.passes(3 * DAY_MS)
    other.stops()
    one.speaks()
    assert chat.told() == []
    one.stops()
    chat.starts("one", speaks=True)
    assert chat.told() == []


def test_a_single_watcher_that_restarts_delivers_everything(chat: Chat) -> None:
    one = chat.starts("one", speaks=True)
    chat.passes(HOUR_MS)
    half_told = chat.hang("half told")
    assert chat.told() == [("half told", OPENED)]
    does_not_answer(chat, one)
    chat.end(half_told)
    chat.end(chat.hang("over"))
    one.stops()
    answers(chat)
    chat.world.now_ms += HOUR_MS
    chat.starts("one", speaks=True)
    assert chat.told() == [("unheard", OPENED), ("half told", RESOLVED), ("over", OPENED), ("over", RESOLVED)]


def test_a_watcher_that_is_silent_for_an_hour_and_hears_no_other_one_keeps_its_queue(chat: Chat) -> None:
    one = chat.starts("one", speaks=True)
    does_not_answer(chat, one)
    chat.end(chat.hang("over"))
    one.lease.held = False
    chat.passes(0)
    assert one.hook.waiting == 0
    answers(chat)
    one.speaks(after_ms=HOUR_MS)
    assert chat.told() == [("unheard", OPENED), ("over", OPENED), ("over", RESOLVED)]


def test_what_a_paused_speaker_had_in_its_queue_is_not_told_after_what_the_other_one_told(
    chat: Chat, two: tuple[Instance, Instance]
) -> None:
    one, other = two
    does_not_answer(chat, one)
    candidate = chat.hang("over")
    one.pauses()
    answers(chat)
    other.speaks()
    assert chat.told() == [("unheard", OPENED), ("over", OPENED)]
    chat.end(candidate)
    assert chat.told() == [("over", RESOLVED)]
    chat.passes(HOUR_MS)
    one.lease.losses += 1
    one.lease.held = False
    one.goes_on()
    chat.running.append(one)
    chat.passes(500)
    other.stops()
    one.speaks()
    assert chat.told() == [("unheard", OPENED)]
