"""Several instances that share the lease of a consumer group: who speaks, and for how long nobody does.

The group is a model of Kafka's: a member that sends no heartbeat for a session is removed, the lease stays with the
member that has it (cooperative-sticky), and a member learns of a loss with its next answer. The decision is the
product's (speaking.py). In each step of half a second a fault may begin or end: an instance is killed, stopped in an
orderly way, started, paused, cut off, or the coordinator goes away. The clock of each instance has its own zero.

A problem begins with its kind:

SILENCE: nobody speaks for longer than is allowed.
TAKEN: an instance has got the lease while the one that had it was well.
TWO SPEAK: two instances speak although the coordinator answers both.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from txnwatch.state.incidents.speaking import SESSION_MS, UNHEARD_MS, Speaking
from txnwatch.state.model.ports import LeaseView

_STEP_MS, _MINUTES = 500, 20
_BEAT_MS = 5_000
_SETTLED_MS = 1_000  # a rebalance, and the next look


@dataclass
class Member:
    """One instance, and the client of the group that runs beside it.

    Attributes:
        zero_ms: what its clock shows when the world begins.
        answered_ms: when the coordinator last answered it; None while it is in no group.
        knows_lease: whether its client believes that it has the lease.
        until_ms: when its pause is over.
    """

    name: str
    zero_ms: int
    speaking: Speaking = field(default_factory=Speaking)
    answered_ms: int | None = None
    knows_lease: bool = False
    is_cut_off: bool = False
    until_ms: int = 0
    looked_ms: int = -(10**9)


class SpeakersWorld:
    """Instances, a group, and faults.

    Attributes:
        is_sticky: whether the lease stays where it is when a member joins.
    """

    is_sticky = True

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.members: dict[str, Member] = {}
        self.holder: str | None = None
        self.heard: dict[str, int] = {}  # the coordinator's view: when it last heard a member
        self.is_away = False
        self.was_holder: str | None = None
        self.members_before = 0
        self.away_ms = self.quiet_ms = self.beat_ms = self.unsettled_ms = 0
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()

    def run(self) -> list[str]:
        """The problems of one world."""
        for _ in range(2):
            self.start()
        for _ in range(_MINUTES * 60_000 // _STEP_MS):
            self.now_ms += _STEP_MS
            if self.rng.random() < 0.01:
                self.fault()
            self.coordinate()
            for member in list(self.members.values()):
                if self.is_awake(member):
                    self.live(member)
            self.beat()
            self.check()
            if self.problems:
                break
        return self.problems

    def start(self) -> None:
        """Starts an instance."""
        name = f"instance {self.seen['started']}"
        self.seen["started"] += 1
        self.members[name] = Member(name, self.rng.randrange(10**12))

    def fault(self) -> None:
        """One thing begins or ends."""
        what = self.rng.choice(("kill", "stop", "start", "pause", "cut", "heal", "away", "back", "upgrade"))
        one = self.rng.choice(list(self.members.values())) if self.members else None
        is_speaker = one is not None and one.speaking.speaks
        self.seen[f"{what}{' the speaker' if is_speaker else ''}"] += 1
        match what:
            case "kill" if one is not None and len(self.members) > 1:
                del self.members[one.name]
            case "stop" if one is not None and len(self.members) > 1:
                self.stop(one)
            case "upgrade" if one is not None:
                self.stop(one)
                self.start()
            case "start" if len(self.members) < 4:
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
        """An orderly stop: the lease is handed over at once, if the coordinator can be told."""
        del self.members[member.name]
        if self.reaches(member):
            self.heard.pop(member.name, None)
            if self.holder == member.name:
                self.holder = None

    def is_awake(self, member: Member) -> bool:
        """Whether its process runs."""
        return self.now_ms >= member.until_ms

    def reaches(self, member: Member) -> bool:
        """Whether the coordinator answers it."""
        return self.is_awake(member) and not member.is_cut_off and not self.is_away

    def coordinate(self) -> None:
        """The coordinator removes members that are silent, and gives the lease to one if nobody has it."""
        if self.is_away:
            self.heard = dict.fromkeys(self.heard, self.now_ms)  # a new coordinator begins all sessions anew
            return
        for name, heard_ms in list(self.heard.items()):
            if self.now_ms - heard_ms > SESSION_MS:
                del self.heard[name]
        if self.holder is not None and self.holder not in self.heard:
            self.holder = None
        is_new = len(self.heard) > self.members_before and not self.is_sticky
        self.members_before = len(self.heard)
        if (self.holder is None or is_new) and self.heard:
            self.holder = self.chosen()

    def chosen(self) -> str:
        """A member that gets a free lease."""
        return self.rng.choice(list(self.heard))

    def live(self, member: Member) -> None:
        """Half a second of an instance: its client talks to the coordinator, and it looks whether it speaks."""
        if self.reaches(member):
            self.heard[member.name] = member.answered_ms = self.now_ms
            member.knows_lease = self.holder == member.name
        elif member.answered_ms is not None and self.now_ms - member.answered_ms > SESSION_MS:
            member.answered_ms, member.knows_lease = None, False
        lease = LeaseView.UNKNOWN
        if member.answered_ms is not None:
            lease = LeaseView.HELD if member.knows_lease else LeaseView.ANOTHERS
            if self.now_ms - member.looked_ms > SESSION_MS and not self.reaches(member):
                lease = LeaseView.UNKNOWN
        member.looked_ms = self.now_ms
        member.speaking.look(lease, self.now_ms + member.zero_ms)

    def beat(self) -> None:
        """The speakers' heartbeats on the events topic."""
        if self.now_ms - self.beat_ms < _BEAT_MS:
            return
        self.beat_ms = self.now_ms
        well = [one for one in self.members.values() if self.is_awake(one) and not one.is_cut_off]
        for one in well:
            for other in well:
                if one is not other and one.speaking.speaks:
                    other.speaking.hear("", self.now_ms + other.zero_ms)

    def check(self) -> None:
        """What must always hold; each fault, and each end of a pause, begins a new stretch."""
        if self.is_away:
            self.away_ms = self.now_ms
        if any(self.now_ms - one.until_ms in range(_STEP_MS) for one in self.members.values()):
            self.unsettled_ms = self.now_ms
        well = [one for one in self.members.values() if self.is_awake(one) and not one.is_cut_off]
        speakers = [one for one in well if one.speaking.speaks]
        self.seen[f"{len(speakers)} speak{', coordinator away' if self.is_away else ''}"] += 1
        if speakers or not well:
            self.quiet_ms = self.now_ms
        is_answering = self.now_ms - self.away_ms > SESSION_MS + _SETTLED_MS
        limit_ms = SESSION_MS + _SETTLED_MS + (0 if is_answering else UNHEARD_MS)
        if self.now_ms - max(self.quiet_ms, self.unsettled_ms) > limit_ms:
            self.problems.append(f"SILENCE: nobody speaks for {self.now_ms - self.quiet_ms} ms")
        if len(speakers) > 1 and is_answering and self.now_ms - self.unsettled_ms > SESSION_MS + _SETTLED_MS:
            self.problems.append(f"TWO SPEAK: {[one.name for one in speakers]}")
        self.check_lease()

    def check_lease(self) -> None:
        """The lease stays with a member that is well."""
        was, self.was_holder = self.was_holder, self.holder
        if was is not None and was != self.holder and was in self.members and self.heard.get(was) == self.now_ms:
            self.problems.append(f"TAKEN: {self.holder} has the lease of {was}, which is well")


def run_speakers(seed: int) -> SpeakersWorld:
    """One world; equal seeds give equal worlds."""
    world = SpeakersWorld(seed)
    world.run()
    return world
