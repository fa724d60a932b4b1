"""The cluster as txnwatch asks it: metadata, ListOffsets, Fetch; with a step of the world between any two answers.

Stands in for `streaming.cluster.Cluster` towards the real `Lister` and for the network loop of `streaming.fetch`
towards its real `RangeReading`s. A leader that does not answer is an error for that partition, never a missing answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from simulation.partition import DataPartition, Fetched, PartitionLog, Producer
from simulation.world import World
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC, UNKNOWN_PARTITION, ActiveProducer, ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, ErrorCode, Problem, TopicPartition
from txnwatch.streaming.client.cluster import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from txnwatch.streaming.client.connection import problem_of
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.log import fetch
from txnwatch.streaming.log.fetch import Budget
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch.streaming.wire.fetch_response import PartitionData

CLUSTER_ID = "simulated"
_PATIENCE = 4
_LEADER, _FOLLOWER = 1, 2
_FENCED = 74  # FENCED_LEADER_EPOCH
_OLD_METADATA = 0.5  # so often a task has them, where it is slow
_UNCUT = 0.3  # so often a follower has not cut its log after an unclean election
_REFUSED = Problem("TOPIC_AUTHORIZATION_FAILED", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_NO_ANSWER = Problem("REQUEST_TIMED_OUT")


class View:
    """The cluster as one client sees it.

    Attributes:
        unanswered: how often a request for one partition is lost.
        throttled: how often a Fetch is answered without records because of a quota.
        refreshed: the tick of the last Metadata answer.
        is_still: whether a listing takes no time and is always answered, so it draws nothing.
        has_rack: whether the followers of data are in the client's rack.
        has_slow_tasks: whether a task may have the metadata of an earlier refresh.
    """

    def __init__(self, world: World, rng: random.Random, unanswered: float, throttled: float = 0.0) -> None:
        self.world = world
        self.unanswered = unanswered
        self.throttled = throttled
        self.metadata: Metadata | None = None
        self.refreshed = self.reconnects = 0
        self.is_still = False
        self.has_rack = self.has_slow_tasks = False
        self._earlier: Metadata | None = None
        self._answered_on: dict[int, str] = {}
        self._rng = rng
        self._rng_of_rechecks = random.Random(repr(rng.getstate()[1][:4]))  # the other draws stay the same
        self._rng_of_followers = random.Random(repr(rng.getstate()[1][4:8]))

    @property
    def known(self) -> Metadata:
        return self.metadata if self.metadata is not None else self.refresh()

    def refresh(self, names: Iterable[str] = ()) -> Metadata:
        self.world.churn()
        if self._rng.random() < self.unanswered:
            raise BrokerError("no broker answered")
        self.refreshed, self._earlier = self.world.tick, self.metadata
        topics = self._shown()
        expected = {*names, *(self.metadata.topics if self.metadata is not None else ())}
        asked = self._metadata_of(expected - topics.keys() - {TRANSACTION_STATE_TOPIC})
        hidden = {name: topic for name, topic in asked.items() if topic.is_hidden}
        self.metadata = Metadata(CLUSTER_ID, {}, {**topics, **hidden})
        return self.metadata

    def named(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Topics asked for by name."""
        self.world.churn()
        if self._rng.random() < self.unanswered:
            raise BrokerError("no broker answered")
        return self._metadata_of(names)

    def _shown(self) -> dict[str, TopicInfo]:
        topics: dict[str, TopicInfo] = {}
        for log in (*self.world.data.values(), *self.world.logs):
            name = log.partition.topic
            if self._is_hidden(name):
                continue
            topic = topics.setdefault(name, TopicInfo(name, log.topic_id, {}))
            follower = _FOLLOWER if self.has_rack else None
            topic.partitions[log.partition.partition] = PartitionInfo(
                _LEADER if log.has_leader else None, log.epoch, follower
            )
        return topics

    def _metadata_of(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        shown, hidden = self._shown(), self.world.hidden
        return {
            name: shown.get(name, TopicInfo(name, "", {}, _REFUSED if name in hidden else UNKNOWN_PARTITION))
            for name in names
        }

    def _is_hidden(self, name: str) -> bool:
        return name in self.world.hidden or (name == TRANSACTION_STATE_TOPIC and self.world.is_log_hidden)

    def find(self, partition: TopicPartition) -> PartitionLog | None:
        """The partition's log as it is now."""
        if partition.topic == TRANSACTION_STATE_TOPIC:
            return self.world.logs[partition.partition]
        return self.world.data.get(partition)

    def connection_to_keep(self, node_id: int) -> str:
        """The connection to a broker, where only that shows a restart; it may also be lost without one."""
        if not self.world.keeps_epochs:
            return ""
        self.reconnects += self._rng.random() < self.unanswered / 4
        return self._answered_on.get(node_id, self._connection(node_id)) + f" {self.reconnects}"

    def _connection(self, node_id: int) -> str:
        return str([log.reigns for log in self.world.logs if self.world.clocks.leader(log) == node_id])

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timestamp: int = LATEST,
        isolation: int = READ_UNCOMMITTED,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        """One answer for each partition, at moments of their own."""
        del timeout_s
        self._answered_on = {}
        answers: dict[TopicPartition, ListedOffset | Problem] = {}
        for partition in sorted(partitions):  # callers may hand a set, whose order changes from run to run
            if not self.is_still:
                self.world.churn()
            answers[partition] = answer = self._listed(partition, timestamp, isolation)
            if isinstance(answer, ListedOffset):
                self._answered_on.setdefault(answer.leader, self._connection(answer.leader))
        return answers

    def _listed(self, partition: TopicPartition, timestamp: int, isolation: int) -> ListedOffset | Problem:
        log = self.find(partition)
        is_away = log is None or not log.has_leader or self._is_hidden(partition.topic)
        is_lost = not self.is_still and self._rng.random() < self.unanswered
        if is_lost or is_away or log is None:
            return _NO_ANSWER
        info = self.known.info(partition)
        if info is None or info.leader_epoch != log.epoch:
            return Problem("FENCED_LEADER_EPOCH")
        leader = self.world.clocks.leader(log)
        if timestamp == EARLIEST:
            return ListedOffset(log.start, log.epoch, leader)
        if not log.is_listable:
            return Problem("OFFSET_NOT_AVAILABLE")
        if isolation == READ_COMMITTED and isinstance(log, DataPartition):
            return ListedOffset(log.last_stable_offset, log.epoch, leader)
        return ListedOffset(log.high_watermark, log.epoch, leader)

    def describe(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | Problem]:
        """DescribeProducers: what a replica's producer state has open, markers above the high watermark included.

        It carries no leader epoch: whoever is asked answers, also as a follower that was the leader a moment ago.
        """
        answers: dict[TopicPartition, tuple[ActiveProducer, ...] | Problem] = {}
        for partition in sorted(partitions):  # callers may hand a set, whose order changes from run to run
            self.world.churn()
            log = self.world.data.get(partition)
            is_lost = self._rng.random() < self.unanswered
            if log is None or not log.has_leader or is_lost or self._is_hidden(partition.topic):
                answers[partition] = Problem("NOT_LEADER_OR_FOLLOWER")
                continue
            answers[partition] = tuple(
                ActiveProducer(
                    *(producer_id, known.epoch, None, known.last_timestamp_ms),
                    *(known.coordinator_epoch, known.open_start),
                )
                for producer_id, known in self.producers(log).items()
                if known.open_start is not None
            )
        return answers

    def producers(self, log: DataPartition) -> dict[int, Producer]:
        """The replica that answers; a mutant asks a follower."""
        return log.producers

    def read(self, read: RangeReading) -> None:
        """Fetches until the range is read, or for as long as patience lasts; then what is left is a gap."""
        patience = _PATIENCE
        with self._task():
            while read.needs_fetch:
                patience = self._try(read, patience)

    def read_within(self, reads: list[RangeReading], budgets: list[Budget]) -> None:
        """The same for several ranges, round by round, until all are read or a budget is spent; a round is a second."""
        patience = dict.fromkeys(range(len(reads)), _PATIENCE)
        rounds = 0.0
        with self._task():
            while pending := [number for number, read in enumerate(reads) if read.needs_fetch]:
                for number in pending:
                    patience[number] = self._try(reads[number], patience[number])
                rounds += 1.0
                for budget in budgets:
                    budget.stop_spent(rounds)

    @contextmanager
    def _task(self) -> Iterator[None]:
        """A task has metadata of its own, which may be older than that of the driver."""
        metadata_of_driver = self.metadata
        if self.has_slow_tasks and self._earlier is not None and self._rng_of_followers.random() < _OLD_METADATA:
            self.metadata = self._earlier
        yield
        self.metadata = metadata_of_driver

    def _try(self, read: RangeReading, patience: int) -> int:
        """One Fetch; returns the patience that is left."""
        is_apart = read.wanted.is_recheck and not (self.world.keeps_epochs or self.world.returns_replicas)
        rng = self._rng_of_rechecks if is_apart else self._rng
        if not is_apart:
            self.world.churn()
        before = (read.fold.position, read.must_check)
        if rng.random() < self.throttled:
            self.empty_answer(read)
            return patience
        problem = self._fetch(read, rng)
        if (read.fold.position, read.must_check) == before:
            patience -= 1
        if patience == 0 and read.needs_fetch:
            read.gap(str(problem or "the leader sent nothing"))
        return patience

    def empty_answer(self, read: RangeReading) -> None:
        """The leader throttles us: nothing is read, no patience is lost, and the rest is asked for again later."""
        self.world.seen["throttled"] += 1
        read.is_answered = read.is_answered or not read.must_check
        self.world.note(f"{read.partition}: throttled at {read.fold.position}")

    def _fetch(self, read: RangeReading, rng: random.Random) -> Problem | None:
        log = self.find(read.partition)
        if read.partition.topic in self.world.hidden:
            return _REFUSED
        if log is None or self._is_hidden(read.partition.topic) or log.topic_id != read.topic_id:
            read.absences += 1
            if read.absences >= ABSENCES_OF_A_DELETED_TOPIC:
                read.gone()
            return Problem("UNKNOWN_TOPIC_ID")
        read.absences = 0
        if fetch.replica_to_ask(self, read) == _FOLLOWER:  # type: ignore[arg-type]
            self.ask_follower(read, log)
            return None
        if not log.has_leader or rng.random() < self.unanswered:
            return Problem("no leader")
        return self.ask_leader(read, log, rng)

    def ask_leader(self, read: RangeReading, log: PartitionLog, rng: random.Random) -> Problem | None:
        """One Fetch from the leader. If the task knows an older epoch, the leader of that epoch may answer."""
        replica, asked = log, fetch.epoch_to_ask_under(self, read)  # type: ignore[arg-type]
        if self.has_slow_tasks and asked < log.epoch:
            replica = log.follower(is_uncut=True)
            if log.former is None or replica.epochs[-1][0] != asked:
                return fetch.take_refusal(self, read, problem_of(_FENCED))  # type: ignore[arg-type]
            self.world.seen["a deposed leader has answered"] += 1
        fetch.note_leader(self, read)  # type: ignore[arg-type]
        answer = replica.fetch(read.fold.position, read.last_fetched_epoch, 1 + int(rng.random() * 6))
        if answer.error_code:
            return fetch.take_refusal(self, read, problem_of(answer.error_code))  # type: ignore[arg-type]
        stable = min(log.last_stable_offset, replica.high_watermark) if isinstance(log, DataPartition) else None
        fetch.take_records(read, _data_of(replica, answer, stable))
        return None

    def ask_follower(self, read: RangeReading, log: PartitionLog) -> None:
        """One Fetch from a follower in our rack: it may lag, be away, or still have the log of an earlier leader."""
        rng, info = self._rng_of_followers, self.known.info(read.partition)
        known_epoch = info.leader_epoch if info is not None else None
        is_uncut = log.former is not None and (known_epoch != log.epoch or rng.random() < _UNCUT)
        replica = log.follower(is_uncut=is_uncut)
        is_of_that_leader = known_epoch == log.epoch or known_epoch == replica.epochs[-1][0]
        answer = Fetched(_FENCED)
        if is_of_that_leader and rng.random() >= self.unanswered:
            answer = replica.fetch(read.fold.position, read.last_fetched_epoch, 1 + int(rng.random() * 6))
        self.world.seen["read from a follower"] += bool(answer.entries)
        self.world.seen["a follower lacks records"] += not answer.entries
        stable = log.last_stable_offset if isinstance(log, DataPartition) else 0
        self.take(read, _data_of(replica, answer, min(stable, replica.high_watermark)))

    def take(self, read: RangeReading, data: PartitionData) -> None:
        """Takes the answer of a follower; a mutant believes it."""
        fetch.take_from_follower(read, data)


def _data_of(log: PartitionLog, answer: Fetched, last_stable_offset: int | None) -> PartitionData:
    """The answer of a replica, as a Fetch response brings it."""
    records = memoryview(b"".join([entry.encoded() for entry in answer.entries]))
    at, ends = log.partition, (log.high_watermark, last_stable_offset, log.start)
    return PartitionData(at.topic, at.partition, answer.error_code, *ends, answer.divergence, records)
