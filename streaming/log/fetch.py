"""Reads ranges of partitions from the brokers: raw bytes, read_uncommitted, headers included.

Law: every offset of a range is either walked or reported. Whatever stops a read (no leader, a missing right, bytes that
we cannot decode, offsets that retention deleted, a truncated log) ends in a `PartitionNotice` with topic, partition and
offset. Nothing is skipped silently, and an error of one partition raises nothing.

Truncation is *detected*: Fetch carries the epoch of what was read before, and a leader whose log diverged answers with
the epoch and end offset up to which both logs agree (KIP-320, Fetch version 12). The range is then read again from
there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import FetchRequest

from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC
from txnwatch.state.model.values import BrokerId, DurationMs, ErrorCode, Problem, TopicPartition, is_data
from txnwatch.streaming.client.cluster import EARLIEST, LATEST, Cluster, RequestOf
from txnwatch.streaming.client.connection import LEAST, NEVER, Connection, error_name, problem_of
from txnwatch.streaming.client.metadata import topic_id_uuid
from txnwatch.streaming.log.range_reading import Fold, RangeReading
from txnwatch.streaming.wire.fetch_response import (
    HIGHEST_VERSION,
    FetchAnswer,
    PartitionData,
    decode_fetch_response,
)
from txnwatch.streaming.wire.primitives import NONE, encoded

# The Fetch request for some ranges of one broker.

MAX_BYTES = 16 << 20
PARTITION_MAX_BYTES = (1 << 20, 8 << 20)
MAX_WAIT_MS = 100
_TOPIC_IDS_SINCE, _DIVERGING_EPOCH_SINCE = 13, 12


def _fetch_size(connection: Connection, max_bytes: int) -> int:
    """How many bytes one Fetch asks for."""
    return min(MAX_BYTES, max_bytes, connection.pace.size)


def _fetch_request(cluster: Cluster, reads: Sequence[RangeReading[Fold]], max_bytes: int) -> RequestOf:
    """Builds the Fetch of one broker for a connection: each range from its position on, under the known epoch."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(FetchRequest, highest=HIGHEST_VERSION, lowest=4)
        size = _fetch_size(connection, max_bytes)
        per_partition = min(size, max(PARTITION_MAX_BYTES[0], min(PARTITION_MAX_BYTES[1], size // len(reads))))
        topics: dict[tuple[str, str], list[Any]] = {}
        for read in reads:
            topics.setdefault((read.partition.topic, read.topic_id), []).append(
                FetchRequest.FetchTopic.FetchPartition(
                    version=version,
                    partition=read.partition.partition,
                    current_leader_epoch=epoch_to_ask_under(cluster, read),
                    fetch_offset=read.fold.position,
                    last_fetched_epoch=encoded(read.last_fetched_epoch if version >= _DIVERGING_EPOCH_SINCE else None),
                    log_start_offset=NONE,
                    partition_max_bytes=per_partition,
                )
            )
        return FetchRequest(
            version=version,
            replica_id=NONE,
            max_wait_ms=MAX_WAIT_MS if any(not read.fold.is_done for read in reads) else 0,
            min_bytes=1,
            max_bytes=size,
            isolation_level=0,
            session_id=0,
            session_epoch=NONE,
            topics=[_topic(version, name, topic_id, parts) for (name, topic_id), parts in topics.items()],
            forgotten_topics_data=[],
            rack_id="",
        )

    return build


def _topic(version: int, name: str, topic_id: str, partitions: list[Any]) -> Any:
    named = {"topic_id": topic_id_uuid(topic_id)} if version >= _TOPIC_IDS_SINCE else {"topic": name}
    return FetchRequest.FetchTopic(version=version, partitions=partitions, **named)


def epoch_to_ask_under(cluster: Cluster, read: RangeReading[Fold]) -> int:
    """The youngest epoch that is known: a leader that was deposed before the end was listed must not answer."""
    info = cluster.known.info(read.partition)
    epochs = (info.leader_epoch if info is not None else None, read.wanted.end_epoch)
    return max(map(encoded, epochs))


# Which replica a range of data is read from: its leader, or a follower in the rack of the client.
#
# Brokers let a consumer read from a follower (KIP-392). Between zones, traffic costs money, so a client that names its
# rack (`client.rack`) reads data there. A follower may lag, and after an unclean election it has the old log until it
# cuts it. So a follower is read only where its answer shows that it has the log of the present leader:
#
# - The last batch that was read, or the listing to whose end was read, is of the leader's epoch. The request carries
#   that epoch. A replica knows an epoch only if it has a batch of it, and before it appended that batch it had cut its
#   log to that of the leader. Another replica answers with an error or a divergence (`LogLeaderEpoch`, KIP-320).
# - The leader cannot keep its epoch when it restarts (decision 0049): then one epoch could stand for two logs.
# - The leader need not show first whether it has cut its log (`must_check`): metadata may be older than the plan.
#
# What the follower does not have, does not know or cannot give is read from the leader: an error of a follower, a
# divergence, or an answer without progress shows nothing about the log. The leader lists the end of every range. But an
# answer may have no room: if it has records of other ranges, the follower is asked again.


def replica_to_ask(cluster: Cluster, read: RangeReading[Fold]) -> BrokerId | None:
    """The broker that the next Fetch of a range goes to; None if its partition has no leader, or is not known."""
    info = cluster.known.info(read.partition)
    if info is None or info.leader is None:
        return None
    has_leaders_log = read.last_fetched_epoch is not None and read.last_fetched_epoch == info.leader_epoch
    is_leaders = read.must_check or read.follower_lacks
    is_followed = info.closest is not None and has_leaders_log and not is_leaders
    if is_followed and is_data(read.partition) and not cluster.connection_to_keep(info.leader):
        return info.closest
    return info.leader


# Limits the bytes and the time of one task's reads; the rest is left to the next batch, with a notice.
#
# Why here and not in the plan: Spark fixes the end of a batch before a task reads, and offsets do not show how many
# bytes lie below that end. So a task stops, and reports from which offset on nothing was read. The state keeps that
# offset, judges the partition by census in the meantime, and asks the source to continue from there.
#
# Law: a range may always read its share (bytes divided by ranges); what a range does not use goes to the others. So a
# small range is read completely, however large the others are. Many ranges together can exceed the bytes, by one answer
# for each, until fewer partitions are scanned (source/scan_budget.py). Every range gets an answer before it can be
# stopped, so every batch advances it, and a leader that has changed is always asked whether the log was truncated.

NO_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits that `reads` share.

    Attributes:
        max_bytes: bytes of records as the leaders send them.
        until_s: a time on the clock of the `now_s` that `stop_spent` gets.
    """

    reads: Sequence[RangeReading[Fold]]
    max_bytes: int = NO_LIMIT
    until_s: float = float("inf")

    @property
    def left(self) -> int:
        """How many bytes the reads that go on may still receive."""
        is_over = not any(read.needs_fetch for read in self.reads)
        return 0 if is_over else max(0, self.max_bytes - sum(read.size for read in self.reads))

    def stop_spent(self, now_s: float) -> None:
        """Stops reads that have an answer, once a limit is reached.

        At the limit of bytes these are the reads that have used their share, at the limit of time all reads.
        """
        is_late = now_s >= self.until_s
        if not is_late and sum(read.size for read in self.reads) < self.max_bytes:
            return
        share = self.max_bytes // max(1, len(self.reads))
        for read in self.reads:
            if read.needs_fetch and read.is_answered and (is_late or read.size >= share):
                read.leave()


# How long a read waits for each of many ranges, and when the rest of a range becomes a gap.
#
# A leader that serves our other ranges first, or throttles txnwatch, has not failed: the patience of a range ends only
# if its leader sends nothing. If a leader reports a few times in a row that it cannot read its log, the rest is a gap
# at once, because the other ranges of a task must not wait for it.

_MOST_FAILURES = 3


@dataclass(slots=True)
class FetchRound:
    """The result of one round of Fetch requests.

    Attributes:
        by_broker: the ranges that each broker was asked for.
        problems: errors that may pass.
        unreadable: partitions whose leader reports that it cannot read its log.
    """

    by_broker: dict[BrokerId, list[RangeReading[Fold]]] = field(default_factory=dict)
    problems: dict[TopicPartition, str] = field(default_factory=dict)
    unreadable: set[TopicPartition] = field(default_factory=set)


class RangePatience:
    """How long each range has had no progress, and how often in a row its leader could not read it."""

    def __init__(self, reads: Sequence[RangeReading[Fold]], seconds: float) -> None:
        """The patience of a range begins when it is first asked for."""
        self._seconds = seconds
        self._since: dict[int, float] = {}
        self._places = {id(read): read.place for read in reads}
        self._failures: Counter[int] = Counter()

    def take(self, cluster: Cluster, asked: Sequence[RangeReading[Fold]], done: FetchRound) -> None:
        """Evaluates a round; a range whose patience has ended becomes a gap from its position on."""
        now = time.monotonic()
        moved = {id(read) for read in asked if read.place != self._places[id(read)]}
        for broker, reads in done.by_broker.items():
            throttled_s = cluster.throttled_s(broker)
            is_busy = throttled_s > 0 or any(id(read) in moved for read in reads)
            for read in reads:
                if id(read) in moved or (is_busy and read.partition not in done.problems):
                    self._since[id(read)] = now + throttled_s
        for read in asked:
            self._places[id(read)] = read.place
            self._since.setdefault(id(read), now)
            self._failures[id(read)] = self._failures[id(read)] + 1 if read.partition in done.unreadable else 0
            is_over = now - self._since[id(read)] > self._seconds or self._failures[id(read)] >= _MOST_FAILURES
            if is_over and read.needs_fetch:
                read.gap(done.problems.get(read.partition, "the leader sent nothing"))


# Reads the ranges: rounds of requests to the leaders, until each range is read, is left, or has a gap.

RETRY_PAUSE_S = 0.1

_CANNOT_READ = frozenset({-1, 2, 56})  # UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR


def read_ranges(
    cluster: Cluster,
    ranges: Iterable[RangeReading[Fold]],
    *,
    patience_s: float,
    budgets: Sequence[Budget] = (),
    until: float = NEVER,
) -> None:
    """Reads every range as far as the cluster and the `budgets` allow, the smallest first.

    `patience_s` is how long a range waits while its leader sends nothing; then the rest of it is a gap. The rest is
    also a gap when the cluster's own budget ends. At `until` (on the monotonic clock) the read stops: the rest of a
    range still needs to be fetched, and is no gap.
    """
    reads = sorted(ranges, key=lambda read: read.end - read.start)  # a leader fills its answer in request order
    patience = RangePatience(reads, patience_s)
    while (pending := [read for read in reads if read.needs_fetch]) and time.monotonic() < until:
        if time.monotonic() >= cluster.until:
            for read in pending:
                read.gap("the time budget was used up before it was read")
            return
        ready = _not_throttled(
            cluster, pending, _next_end(until, cluster.until, *(budget.until_s for budget in budgets))
        )
        asked = _one_of_each_partition(ready)
        done = _one_round(cluster, asked, max((budget.left for budget in budgets), default=MAX_BYTES))
        patience.take(cluster, asked, done)
        if done.problems:
            _look_around(cluster, [read for read in asked if read.partition in done.problems])
        for budget in budgets:
            budget.stop_spent(time.monotonic())


def _next_end(*ends: float) -> float:
    """The earliest of some times that has not passed."""
    now = time.monotonic()
    return min((end for end in ends if end > now), default=NEVER)


def _not_throttled(
    cluster: Cluster, pending: Sequence[RangeReading[Fold]], until: float
) -> Sequence[RangeReading[Fold]]:
    """The ranges whose leaders do not throttle txnwatch; if there are none, waits for the first such leader."""
    left_s = {id(read): _throttled_s(cluster, read) for read in pending}
    ready = [read for read in pending if not left_s[id(read)]]
    if not ready:
        time.sleep(max(0.0, min(*left_s.values(), until - time.monotonic())))
    return ready


def _one_of_each_partition(reads: Sequence[RangeReading[Fold]]) -> Sequence[RangeReading[Fold]]:
    """The first range of each partition.

    A Fetch names a partition only once, and its answer does not contain the requested offset, so nothing
    distinguishes two ranges of one partition.
    """
    first: dict[TopicPartition, RangeReading[Fold]] = {}
    for read in reads:
        first.setdefault(read.partition, read)
    return list(first.values())


def _throttled_s(cluster: Cluster, read: RangeReading[Fold]) -> float:
    broker = replica_to_ask(cluster, read)
    return cluster.throttled_s(broker) if broker is not None else 0.0


def _look_around(cluster: Cluster, reads: Sequence[RangeReading[Fold]]) -> None:
    """Refreshes the metadata; a topic is gone if several brokers in a row do not have it under its id.

    Our own metadata may be older than the topic, so a single look, or one that is not fresh, proves nothing.
    """
    time.sleep(RETRY_PAUSE_S)
    try:
        metadata = cluster.refresh({read.partition.topic for read in reads})
    except BrokerError:
        return  # no broker answers; patience decides
    for read in reads:
        topic = metadata.topics.get(read.partition.topic)
        is_absent = topic is None or (read.topic_id and topic.topic_id != read.topic_id and not topic.is_hidden)
        read.absences = read.absences + 1 if is_absent else 0
        if read.absences >= ABSENCES_OF_A_DELETED_TOPIC and read.needs_fetch:
            read.gone()


def _one_round(cluster: Cluster, asked: Sequence[RangeReading[Fold]], left: int) -> FetchRound:
    """Sends one Fetch to every broker concerned, for `left` bytes together, and walks the answers."""
    done = FetchRound()
    for read in asked:
        broker = replica_to_ask(cluster, read)
        if broker is not None:
            done.by_broker.setdefault(broker, []).append(read)
        else:
            is_known = cluster.known.info(read.partition) is not None
            done.problems[read.partition] = "no leader" if is_known else "not in the cluster's metadata"
    refused: list[tuple[RangeReading[Fold], Problem]] = []

    def receive(broker: BrokerId, connection: Connection, timeout_s: float, until: float) -> dict[TopicPartition, str]:
        # Records are views into the connection's buffer, so they are walked here, before the next answer is read.
        reads = done.by_broker[broker]
        skips_records = not any(read.fold.reads_records for read in reads)
        answer = _receive(connection, timeout_s, until, max_bytes, skips_records=skips_records)
        return _take(cluster, broker, reads, answer, refused)

    max_bytes = max(LEAST, min(MAX_BYTES, left // max(1, len(done.by_broker))))
    requests = {broker: _fetch_request(cluster, reads, max_bytes) for broker, reads in done.by_broker.items()}
    for broker, answer in cluster.ask(requests, cluster.timeout_s, receive).items():
        _note_answer(cluster, broker, done, answer)
    for read, refusal in refused:
        problem = take_refusal(cluster, read, refusal)
        if problem is not None:
            done.problems[read.partition] = str(problem)
        if refusal.code in _CANNOT_READ:
            done.unreadable.add(read.partition)
    return done


def _note_answer(
    cluster: Cluster, broker: BrokerId, done: FetchRound, answer: dict[TopicPartition, str] | BrokerError
) -> None:
    """Notes what the answer of one broker shows about all ranges that it was asked for."""
    reads, is_error = done.by_broker[broker], isinstance(answer, BrokerError)
    problems = {read.partition: str(answer) for read in reads} if isinstance(answer, BrokerError) else answer
    done.problems.update(problems)
    for read in reads:
        if broker != cluster.known.leader(read.partition):
            read.follower_lacks = read.follower_lacks or read.partition in problems
        elif not is_error:
            note_leader(cluster, read)


def note_leader(cluster: Cluster, read: RangeReading[Fold]) -> None:
    """Notes whether another leader than the listed one has answered (`RangeReading.youngest_epoch`).

    Only its connection shows whether a leader that restarts may keep its epoch.
    """
    info, listed = cluster.known.info(read.partition), read.wanted.listed_epoch
    if info is not None and info.leader is not None and listed is not None and info.leader_epoch != listed:
        read.is_led_anew = read.is_led_anew or bool(cluster.connection_to_keep(info.leader))


def _receive(
    connection: Connection, timeout_s: float, until: float, max_bytes: int, *, skips_records: bool
) -> FetchAnswer:
    """Receives and decodes one answer, and adjusts the connection's pace."""
    began = time.monotonic()
    asked, body = connection.receive_body(timeout_s, until, skips_records=skips_records)
    took_s = time.monotonic() - began
    try:
        answer = decode_fetch_response(body, asked.request_api_version)
    except WireError as exc:
        raise connection.broken(exc) from exc
    connection.throttled(asked, DurationMs(answer.throttle_ms))
    received = sum(len(data.records) for data in answer.partitions)
    connection.pace.answered(_fetch_size(connection, max_bytes), received, took_s, answer.throttle_ms / 1000)
    return answer


def _take(
    cluster: Cluster,
    broker: BrokerId,
    reads: Sequence[RangeReading[Fold]],
    answer: FetchAnswer,
    refused: list[tuple[RangeReading[Fold], Problem]],
) -> dict[TopicPartition, str]:
    """Walks the records of a response; adds the partitions with an error to `refused`."""
    if answer.error_code:
        why = error_name(answer.error_code)
        return {read.partition: why for read in reads}
    if answer.throttle_ms and not answer.partitions:  # no more can be had now, so reading may stop here
        for waiting in reads:
            waiting.is_answered = waiting.is_answered or not waiting.must_check
    has_records = any(data.records for data in answer.partitions)
    asked = {(read.partition.topic, read.partition.partition): read for read in reads}
    asked_by_id = {(_id_bytes(read), read.partition.partition): read for read in reads}
    for data in answer.partitions:
        key = (data.topic, data.partition)
        read = asked.get(key) if isinstance(data.topic, str) else asked_by_id.get(key)  # type: ignore[arg-type]
        if read is None:
            continue
        problem = problem_of(data.error_code)
        if broker != cluster.known.leader(read.partition):
            take_from_follower(read, data, is_full=has_records)
        elif problem is not None:
            refused.append((read, problem))
        else:
            take_records(read, data)
    return {}


def _id_bytes(read: RangeReading[Fold]) -> bytes:
    return topic_id_uuid(read.topic_id).bytes if read.topic_id else b""


def take_refusal(cluster: Cluster, read: RangeReading[Fold], refusal: Problem) -> Problem | None:
    """Handles the error of one partition; returns a problem that may pass, else None."""
    if refusal.code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return _out_of_range(cluster, read)
    if refusal.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        read.is_denied = True
        read.gap(str(refusal.with_right("READ on the topic")))
        return None
    return refusal


def take_records(read: RangeReading[Fold], data: PartitionData) -> None:
    """Feeds one answer to the fold of a range, or cuts the range if the log of the leader diverges."""
    if data.divergence is not None:
        epoch, end = data.divergence
        if end < read.fold.position:
            read.truncated(end, f"the leader's log diverges after offset {end} of epoch {epoch}", epoch)
        elif end > read.fold.position or read.fold.last_epoch is not None:
            # A clean election never leads to this: the epochs after `epoch` began at or below our position, and a
            # leader has the epoch of a batch that was read.
            read.replaced(f"the leader has a log of its own: epoch {epoch} goes on until offset {end} there", epoch)
        else:
            # A leader that has appended nothing leaves no trace of its epoch: this is usual after an election. Of the
            # coordinators' log, the last batch is compared, too (LastBatch).
            read.last_epoch = epoch
        return
    read.must_check, read.is_answered = False, True
    read.saw_end(data.high_watermark)
    try:
        _feed(read, data)
    except WireError as exc:
        read.gap(f"cannot decode the batch at offset {read.fold.position}: {exc}", is_decode_failure=True)


def take_from_follower(read: RangeReading[Fold], data: PartitionData, *, is_full: bool = False) -> None:
    """Feeds what a follower has to the fold of a range; the leader is asked for what it does not have.

    `is_full`: the answer has records. Then it may have had no room for those of this range.
    """
    position, is_lacking = read.fold.position, bool(data.error_code) or data.divergence is not None
    if not is_lacking:
        try:
            _feed(read, data)
        except WireError:
            is_lacking = True
    has_more = is_full and not data.records and data.high_watermark is not None and data.high_watermark > position
    read.follower_lacks = read.follower_lacks or is_lacking or (read.fold.position == position and not has_more)
    read.is_answered = read.is_answered or not read.follower_lacks


def _feed(read: RangeReading[Fold], data: PartitionData) -> None:
    read.size += len(data.records)
    read.last_stable_offset = data.last_stable_offset
    read.fold.feed(data.records)


def _out_of_range(cluster: Cluster, read: RangeReading[Fold]) -> Problem | None:
    """Handles a position that the leader's log does not have: deleted by retention, or truncated."""
    earliest = cluster.list_offsets([read.partition], timestamp=EARLIEST)[read.partition]
    latest = cluster.list_offsets([read.partition], timestamp=LATEST)[read.partition]
    if isinstance(earliest, Problem):
        return earliest
    if isinstance(latest, Problem):
        return latest
    if read.fold.position < earliest.offset:
        why = f"the log starts at {earliest.offset}: retention or DeleteRecords removed the records below"
        read.lost(earliest.offset, why)
    elif read.fold.position > latest.offset:
        read.truncated(latest.offset, f"the leader's log ends at {latest.offset}")
    return None
