"""The ledger's invariants, whatever happens in whatever order, with one instance and with two, of which one speaks.

Seen by a consumer that keeps `ce_id`: the first event of an incident is `opened`, sequences rise by one, at most one
`resolved` ends it, and nothing comes after. With one instance no `updated` is noise. Compaction leaves the newest.
Redis shows what is open, and each incident as its last event has it. No event of an incident is kept a day after it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.evidence.ending import needs_update
from txnwatch.state.incidents.speaking import SILENT, WHOLE, SpeakerRole
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.incident import KEPT_MS, IncidentEvent

NAMES = ("a", "b", "c")
PAUSES_MS = (100, 500, 5_000, 12_000, 61_000, KEPT_MS + 1)
Step = tuple[str, int, int, int, bool, bool]
STEPS = ("hang", "end", "traffic", "commit", "join", "unread", "away", "redis", "restart", "idle", "speaker")
steps = st.lists(
    st.tuples(
        st.sampled_from(STEPS),
        st.integers(0, 2),
        st.integers(0, 1),
        st.sampled_from(PAUSES_MS),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


class Game:
    """Some instances, one topic, and everything that can happen to them."""

    def __init__(self, instances: int) -> None:
        self.world = LedgerWorld()
        self.log = SharedLog()
        self.speaker: int | None = 0
        self.ledgers = [self._begun(number) for number in range(instances)]
        self.hanging: dict[str, SpanCandidate] = {}
        self.partitions = dict(zip(NAMES, self.world.admin.create_topic("data", len(NAMES)), strict=True))
        self._acts: dict[str, Callable[[str, int], tuple[Finding, ...]]] = {
            "hang": self._hang,
            "end": self._end,
            "traffic": self._traffic,
            "commit": self._commit,
            "join": self._join,
            "unread": self._unread,
            "away": self._away,
            "redis": self._redis,
            "restart": self._restart,
            "idle": lambda *_: (),
            "speaker": self._speaker,
        }

    def play(self, step: Step) -> None:
        """`is_late`: the speaker comes after the others; `moves_too`: another one begins to speak at that moment."""
        what, name, instance, after_ms, is_late, moves_too = step
        findings = self._acts[what](NAMES[name], instance % len(self.ledgers))
        if moves_too and what != "restart":
            self._speaker(what, instance % len(self.ledgers))
        self.world.now_ms += after_ms
        self.world.admin.now_ms = self.world.now_ms
        order = sorted(range(len(self.ledgers)), key=lambda number: (number == self.speaker) is is_late)
        for ledger in (
            self.ledgers[number] for number in order
        ):  # each instance's own state emits the same; candidates are emitted again and again
            ledger.on_batch([*findings, *self.hanging.values()])

    def settle(self) -> None:
        self.log.is_away = False
        self.world.admin.problems.clear()
        self.speaker = self.speaker or 0
        for _ in range(8):
            self.play(("idle", 0, 0, 61_000, False, False))

    def _hang(self, name: str, _: int) -> tuple[Finding, ...]:
        if name not in self.hanging and not self.is_open(name):
            self.world.admin.begin(name, self.partitions[name])
            self.world.admin.lose_markers(name, commit=False)
            owner = self.world.admin.transactions[name]
            self.hanging[name] = self.world.candidate_on(self.partitions[name], owner.producer_id, name)
        return ()

    def is_open(self, name: str) -> bool:
        owner = self.world.admin.transactions.get(name)
        rows = self.world.admin.partitions[self.partitions[name]].producers
        return owner is not None and owner.producer_id in rows and rows[owner.producer_id].txn_start_offset is not None

    def is_recent(self, event: IncidentEvent) -> bool:
        return self.world.now_ms - event.time_ms < KEPT_MS

    def _end(self, name: str, _: int) -> tuple[Finding, ...]:
        candidate = self.hanging.pop(name, None)
        return () if candidate is None else (self.world.abort(candidate),)

    def _traffic(self, name: str, instance: int) -> tuple[Finding, ...]:
        self.world.admin.plain(self.partitions[name], 7 if instance else 300)
        return ()

    def _commit(self, name: str, _: int) -> tuple[Finding, ...]:
        at = self.world.admin.partitions[self.partitions[name]]
        self.world.groups.commit(f"group-{name}", self.partitions[name], at.last_stable_offset)
        return ()

    def _join(self, name: str, _: int) -> tuple[Finding, ...]:
        """The producer's next transaction absorbs the span; from then on the state emits nothing about it."""
        if name in self.hanging:
            del self.hanging[name]
            self.world.admin.begin(name, self.partitions[name])
        elif self.is_open(name):
            self.world.admin.end(name, commit=True)
        return ()

    def _unread(self, name: str, _: int) -> tuple[Finding, ...]:
        partition = self.partitions[name]
        if self.world.admin.problems.pop(partition, None) is None:
            self.world.admin.problems[partition] = "NOT_LEADER_OR_FOLLOWER"
        return ()

    def _away(self, _: str, __: int) -> tuple[Finding, ...]:
        self.log.is_away = not self.log.is_away
        return ()

    def _redis(self, _: str, __: int) -> tuple[Finding, ...]:
        self.world.redis.latest.clear()
        self.world.redis.is_emptied = True
        return ()

    def _restart(self, _: str, instance: int) -> tuple[Finding, ...]:
        """If it was the speaker, nobody speaks until another one does."""
        self.ledgers[instance] = self._begun(instance)
        if self.speaker == instance and len(self.ledgers) > 1:
            self.speaker = None
        return ()

    def _speaker(self, _: str, instance: int) -> tuple[Finding, ...]:
        self.speaker = instance
        return ()

    def _begun(self, number: int) -> RunningLedger:
        def role() -> SpeakerRole:
            return WHOLE if self.speaker == number else SILENT

        return self.world.another(self.log, role=role, name=f"instance {number}")


def lives(log: SharedLog) -> dict[str, list[IncidentEvent]]:
    found: dict[str, list[IncidentEvent]] = defaultdict(list)
    for event in log.published:
        found[event.incident_id].append(event)
    return found


def check_life(events: list[IncidentEvent]) -> None:
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[0].status == "opened"
    assert [event.status for event in events[1:-1]] == ["updated"] * (len(events) - 2)
    assert "opened" not in [event.status for event in events[1:]]


def check_redis(game: Game) -> None:
    published, shown = game.log.compacted, game.world.redis.latest
    assert all(event.sequence == published[name].sequence for name, event in shown.items())
    assert {name for name, event in published.items() if event.is_open or game.is_recent(event)} <= shown.keys()


def play(instances: int, game_steps: list[Step]) -> Game:
    game = Game(instances)
    for step in game_steps:
        game.play(step)
    game.settle()
    for events in lives(game.log).values():
        check_life(events)
    for incident_id, last in game.log.compacted.items():
        assert last.sequence == max(event.sequence for event in lives(game.log)[incident_id])
        assert last.status == lives(game.log)[incident_id][-1].status
    check_redis(game)
    truth = {partition for name, partition in game.partitions.items() if game.is_open(name)}
    for ledger in game.ledgers:
        assert all(event.is_open or game.is_recent(event) for event in ledger.incidents)
        assert {(event.topic, event.partition) for event in ledger.open_incidents} <= truth
        assert {(event.topic, event.partition) for event in ledger.open_incidents} >= {
            candidate.partition for candidate in game.hanging.values()
        }
    return game


@given(steps)
def test_one_instance(game_steps: list[Step]) -> None:
    game = play(1, game_steps)
    for events in lives(game.log).values():
        for known, now in itertools.pairwise(events):
            assert now.status == "resolved" or needs_update(known, now), "never an update of noise"


@given(steps)
def test_two_instances(game_steps: list[Step]) -> None:
    play(2, game_steps)
