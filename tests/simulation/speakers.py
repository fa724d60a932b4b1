"""Several instances that share the leases of consumer groups: who speaks, who tells whole transactions, and since when.

A group is a model of Kafka's: a member that sends no heartbeat for a session is removed, the lease stays with the
member that has it (cooperative-sticky), a group without members waits before it gives the lease, and a member learns of
a loss with its next answer. The decision is the product's (speaking.py, SpeakerGate). In each step of half a second a
fault may begin or end: an instance is killed, stopped in an orderly way, started, paused, cut off, or the coordinator
goes away. The instances have one of two choices of topics, and the clock of each has its own zero. In some worlds
somebody forges heartbeats of instances that speak.

A problem begins with its kind:

SILENCE: nobody speaks about a choice of topics, or tells whole transactions, for longer than is allowed.
TAKEN: an instance has got a lease while the one that had it was well.
TWO SPEAK: two instances speak about the same topics, or tell transactions, although the coordinator answers both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from txnwatch.sinks.incidents.group_lease import SpeakerGate
from txnwatch.state.incidents.speaking import SESSION_MS, SILENT, UNHEARD_MS, SpeakerRole
from txnwatch.state.model.ports import LeaseView

_STEP_MS, _MINUTES = 500, 20
_BEAT_MS = 5_000
_SETTLED_MS = 1_000  # a rebalance, and the next look
_SILENT_MS = 8_000  # with a micro-batch and a delivery, nobody speaks for 10 s at most (docs/high-availability.md)
_EMPTY_MS = 3_000  # group.initial.rebalance.delay.ms
_MOST = 5


@dataclass
class Group:
    """What the coordinator knows of one group.

    Attributes:
        heard: when it last heard a member.
        is_sticky: whether the lease stays where it is when a member joins.
    """

    rng: random.Random
    heard: dict[str, int] = field(default_factory=dict)
    holder: str | None = None
    empty_ms: int = 0
    was: str | None = None
    members_before: int = 0
    is_sticky = True

    def coordinate(self, now_ms: int, *, is_away: bool) -> None:
        """Removes members that are silent, and gives the lease to one if nobody has it."""
        if is_away:
            self.heard = dict.fromkeys(self.heard, now_ms)  # a new coordinator begins all sessions anew
            return
        self.heard = {name: at_ms for name, at_ms in self.heard.items() if now_ms - at_ms <= SESSION_MS}
        if self.holder not in self.heard:
            self.holder = self.was = None
        is_new = len(self.heard) > self.members_before and not self.is_sticky
        self.members_before = len(self.heard)
        if not self.heard:
            self.empty_ms = now_ms
        elif (self.holder is None and now_ms - self.empty_ms > _EMPTY_MS) or is_new:
            self.holder = self.rng.choice(list(self.heard))

    def leave(self, name: str) -> None:
        """A member leaves; another one gets its lease at once."""
        self.heard.pop(name, None)
        if self.holder == name:
            self.holder = self.was = None

    def wrong(self, now_ms: int) -> Iterable[str]:
        """The lease stays with a member that is well."""
        was, self.was = self.was, self.holder
        if was is not None and was != self.holder and self.heard.get(was) == now_ms:
            yield f"TAKEN: {self.holder} has the lease of {was}, which is well"


class ClientLease:
    """The lease of one instance in one group, and the client of the group that runs beside it; see Lease.

    Attributes:
        answered_ms: when the coordinator last answered; None while it is in no group.
        knows_lease: whether the client believes that it has the lease.
    """

    problem: str | None = None
    losses = 0

    def __init__(self, world: SpeakersWorld, member: Member, group: Group) -> None:
        self._world, self._member, self._group = world, member, group
        self.answered_ms: int | None = None
        self.knows_lease = False
        self._looked_ms = -(10**9)
        member.leases.append(self)

    def live(self) -> None:
        """Half a second of the client."""
        now_ms = self._world.now_ms
        if self._world.reaches(self._member):
            self._group.heard[self._member.name] = self.answered_ms = now_ms
            self.knows_lease = self._group.holder == self._member.name
        elif self.answered_ms is not None and now_ms - self.answered_ms > SESSION_MS:
            self.answered_ms, self.knows_lease = None, False

    def view(self) -> LeaseView:
        """See Lease."""
        now_ms, before_ms = self._world.now_ms, self._looked_ms
        self._looked_ms = now_ms
        if self.answered_ms is None or (now_ms - before_ms > SESSION_MS and not self._world.reaches(self._member)):
            return LeaseView.UNKNOWN
        return LeaseView.HELD if self.knows_lease else LeaseView.ANOTHERS

    def is_held_now(self) -> bool:
        """See Lease."""
        return self.knows_lease

    def close(self) -> None:
        """See Lease."""
        self._member.leases.remove(self)
        if self._world.reaches(self._member):
            self._group.leave(self._member.name)


class Member:
    """One instance.

    Attributes:
        topics: its choice of topics.
        role: what it publishes.
        until_ms: when its pause is over.
    """

    def __init__(self, world: SpeakersWorld, name: str, topics: str) -> None:
        self.name, self.topics = name, topics
        self.leases: list[ClientLease] = []
        self.role: SpeakerRole = SILENT
        self.is_cut_off, self.until_ms = False, 0
        zero_ms = world.rng.randrange(10**12)
        self.gate = SpeakerGate(
            ClientLease(world, self, world.groups[topics]),
            lambda: ClientLease(world, self, world.groups[_TRANSACTIONS]),
            lambda _: None,
            lambda: (world.now_ms + zero_ms) / 1000,
        )

    def live(self) -> None:
        """Half a second of an instance: its clients talk to the coordinator, and it looks whether it speaks."""
        for lease in list(self.leases):
            lease.live()
        self.role = self.gate.role()


_TRANSACTIONS = "transactions"
_TOPICS = ("orders", "payments")


@dataclass
class MustBeTold:
    """What must always be said by one: what the instances with one choice of topics say, or whole transactions.

    Attributes:
        says: whether an instance tells it, by its role.
        can: whether an instance may be the one that says it.
        settle_ms, alone_ms: how long it may take until one says it, while the coordinator answers, and while not.
        is_silenced: whether forged heartbeats can silence it while the coordinator is away.
    """

    name: str
    says: Callable[[SpeakerRole], bool]
    can: Callable[[Member], bool]
    settle_ms: int
    alone_ms: int
    is_silenced: bool = True
    quiet_ms: int = 0


class SpeakersWorld:
    """Instances, groups, and faults."""

    def __init__(self, seed: int, *, forging: bool = False) -> None:
        self.rng = random.Random(seed)
        self.forging = forging
        self.now_ms = 0
        self.members: dict[str, Member] = {}
        self.groups = {name: Group(self.rng) for name in (*_TOPICS, _TRANSACTIONS)}
        self.is_away = False
        self.away_ms = self.beat_ms = self.unsettled_ms = 0
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()
        self.told = [
            MustBeTold(
                one, lambda role: role.speaks, lambda member, one=one: member.topics == one, _SILENT_MS, UNHEARD_MS
            )
            for one in _TOPICS
        ]
        self.told.append(
            MustBeTold(
                *(_TRANSACTIONS, lambda role: role.tells_transactions, lambda member: member.role.speaks),
                *(_SILENT_MS + _EMPTY_MS + _SETTLED_MS, 2 * UNHEARD_MS),
                is_silenced=False,
            )
        )

    def run(self) -> list[str]:
        """The problems of one world."""
        for topics in (*_TOPICS, *_TOPICS):
            self.start(topics)
        for _ in range(_MINUTES * 60_000 // _STEP_MS):
            self.now_ms += _STEP_MS
            if self.rng.random() < 0.01:
                self.fault()
            for group in self.groups.values():
                group.coordinate(self.now_ms, is_away=self.is_away)
            for member in list(self.members.values()):
                if self.is_awake(member):
                    member.live()
            self.beat()
            self.check()
            if self.problems:
                break
        return self.problems

    def start(self, topics: str | None = None) -> None:
        """Starts an instance."""
        name = f"instance {self.seen['started']}"
        self.seen["started"] += 1
        self.members[name] = Member(self, name, topics or self.rng.choice(_TOPICS))

    def fault(self) -> None:
        """One thing begins or ends."""
        what = self.rng.choice(("kill", "stop", "start", "pause", "cut", "heal", "away", "back", "upgrade"))
        one = self.rng.choice(list(self.members.values())) if self.members else None
        is_speaker = one is not None and one.role.speaks
        self.seen[f"{what}{' the speaker' if is_speaker else ''}"] += 1
        match what:
            case "kill" if one is not None and len(self.members) > 1:
                del self.members[one.name]
            case "stop" if one is not None and len(self.members) > 1:
                self.stop(one)
            case "upgrade" if one is not None:
                self.stop(one)
                self.start(one.topics)
            case "start" if len(self.members) < _MOST:
                self.start()
            case "pause" if one is not None:
                one.until_ms = self.now_ms + self.rng.choice((1_000, 6_000, 15_000, 90_000))
            case "cut" if one is not None:
                one.is_cut_off = True
            case "heal":
                for member in self.members.values():
                    member.is_cut_off = False
            case "away" | "back":
                self.is_away = what == "away"
        self.unsettled_ms = self.now_ms

    def stop(self, member: Member) -> None:
        """An orderly stop: the leases are handed over at once, if the coordinator can be told."""
        del self.members[member.name]
        for lease in list(member.leases):
            lease.close()

    def is_awake(self, member: Member) -> bool:
        """Whether its process runs."""
        return self.now_ms >= member.until_ms

    def reaches(self, member: Member) -> bool:
        """Whether the coordinator answers it."""
        return self.is_awake(member) and not member.is_cut_off and not self.is_away

    def well(self) -> list[Member]:
        """Those that run and have a network."""
        return [one for one in self.members.values() if self.is_awake(one) and not one.is_cut_off]

    def beat(self) -> None:
        """The speakers' heartbeats on the events topic, and those that somebody forges."""
        if self.now_ms - self.beat_ms < _BEAT_MS:
            return
        self.beat_ms = self.now_ms
        well = self.well()
        for other in well:
            if self.forging or any(one is not other and one.role.speaks and one.topics == other.topics for one in well):
                other.gate.hear()

    def check(self) -> None:
        """What must always hold; each fault, and each end of a pause, begins a new stretch."""
        if self.is_away:
            self.away_ms = self.now_ms
        if any(self.now_ms - one.until_ms in range(_STEP_MS) for one in self.members.values()):
            self.unsettled_ms = self.now_ms
        is_answering = self.now_ms - self.away_ms > SESSION_MS + _SETTLED_MS
        for told in self.told:
            self.check_told(told, is_answering=is_answering)
        for group in self.groups.values():
            self.problems += group.wrong(self.now_ms)

    def check_told(self, told: MustBeTold, *, is_answering: bool) -> None:
        """Somebody says it, and not two."""
        able = [one for one in self.well() if told.can(one)]
        tellers = [one.name for one in able if told.says(one.role)]
        self.seen[f"{len(tellers)} tell {told.name}{', coordinator away' if self.is_away else ''}"] += 1
        is_silenced = self.forging and told.is_silenced and not is_answering
        if tellers or not able or is_silenced:
            told.quiet_ms = self.now_ms
        limit_ms = told.settle_ms + (0 if is_answering else told.alone_ms)
        since_ms = self.now_ms - max(told.quiet_ms, self.unsettled_ms)
        if since_ms > limit_ms:
            self.problems.append(f"SILENCE: nobody tells {told.name} for {since_ms} ms")
        if len(tellers) > 1 and is_answering and self.now_ms - self.unsettled_ms > told.settle_ms:
            self.problems.append(f"TWO SPEAK: {tellers} tell {told.name}")


def run_speakers(seed: int) -> SpeakersWorld:
    """One world; equal seeds give equal worlds."""
    world = SpeakersWorld(seed, forging=seed % 3 == 0)
    world.run()
    return world
