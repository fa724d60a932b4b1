"""A range of one partition of `__transaction_state` into what it says about each producer id.

Law: a record belongs to the producer id it names and, where the transactional id has moved on from another one
(epoch exhaustion: Prepare* under the old id, Complete* under the new), to that one too, for which it is the
completion. What a transaction held is remembered past its Complete* record, which has forgotten it. A record follows
on from the one before only if no offset between the two is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from txnwatch.state.facts import TransactionalIdGone, TransactionSeen
from txnwatch.state.ids import TopicPartition
from txnwatch.state.latency import End, Tally
from txnwatch.state.lineage import begun, follow
from txnwatch.state.transaction import CoordinatorView, TransactionState
from txnwatch.streaming.holes import whole_from
from txnwatch.streaming.wire.record_batch import Record, records, walk
from txnwatch.streaming.wire.transaction_log import TransactionLogValue, decode_key, decode_value

_COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


class TransactionFold:
    """Folds records of one partition of the coordinator's log from `start` up to `end` (exclusive).

    Attributes:
        position: the next offset to fetch.
        times: the broker's timestamps of the first and the last record, None before the first.
        hole: the first offset that is no longer there, because compaction has been there; None if all are.
        whole_from: where the last hole so far ended; `start` if there was none.
    """

    def __init__(self, log_partition: int, start: int, end: int) -> None:
        self.log_partition = log_partition
        self.start = start
        self.end = end
        self.position = start
        self.leader_epoch = -1
        self.hole: int | None = None
        self.whole_from = start
        self.times: tuple[int, int] | None = None
        self._views: dict[int, CoordinatorView] = {}
        self._held: dict[int, frozenset[TopicPartition]] = {}
        self._owner: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._ended: dict[int, Tally] = {}
        self._first_ends: dict[int, End] = {}

    @property
    def is_done(self) -> bool:
        """Whether every offset of the range has been walked."""
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes, whole_before: Mapping[int, int] | None = None) -> None:
        """Decodes the `records` of one Fetch response.

        Of batches that were picked out of a log `whole_before` tells, by base offset, where the log's last hole
        before each ended: what was not picked is none.

        Raises:
            WireError: a batch, key or value of this log that cannot be decoded; `position` is the batch's offset.
        """
        for offset, header in walk(buffer):
            if header.base_offset > self.position and self.hole is None:
                self.hole = self.position
            if whole_before is None:
                self.whole_from = whole_from(self.whole_from, self.position, header)
            else:
                self.whole_from = whole_before[header.base_offset]
            if header.base_offset >= self.end:
                self.position = self.end
                return
            if header.base_offset >= self.start and not header.is_control:
                for record in records(buffer, offset, header):
                    self._record(record, header.leader_epoch)
            self.leader_epoch = header.leader_epoch
            self.position = header.last_offset + 1

    def _record(self, record: Record, coordinator_epoch: int) -> None:
        transactional_id = decode_key(record.key) if record.key is not None else None
        if transactional_id is None:
            return
        self.times = (self.times[0] if self.times is not None else record.timestamp, record.timestamp)
        if record.value is None:
            self._tombstone(transactional_id, record.offset)
        else:
            self._value(transactional_id, record, decode_value(record.value), coordinator_epoch)

    def _tombstone(self, transactional_id: str, offset: int) -> None:
        self._gone[transactional_id] = offset
        owner = self._owner.get(transactional_id)
        if owner is not None:
            self._views[owner] = replace(self._views[owner], state=TransactionState.DEAD, log_offset=offset)

    def _value(self, transactional_id: str, record: Record, value: TransactionLogValue, coordinator_epoch: int) -> None:
        view = self._view(transactional_id, record, value, coordinator_epoch)
        end = End(view.state, record.timestamp, value.last_update_ms, coordinator_epoch)
        for former in {value.previous_producer_id, self._owner.get(transactional_id, -1)}:
            if former >= 0 and former != value.producer_id:
                self._supersede(former, view, value.producer_id, end)
        if view.is_live:
            self._held[value.producer_id] = self._held.get(value.producer_id, frozenset()) | view.participants
        self._time(value.producer_id, end)
        prior = self._views.get(value.producer_id)
        view = begun(view)
        if prior is not None or self.whole_from > self.start:
            follows_on = prior is not None and prior.log_offset >= self.whole_from
            view = follow(prior, view, follows_on=follows_on)
        self._views[value.producer_id] = view
        self._owner[transactional_id] = value.producer_id

    def _time(self, producer_id: int, end: End) -> None:
        """How long what ends here took; what was prepared before the range is for the state to say."""
        if end.state not in _COMPLETE:
            return
        prior = self._views.get(producer_id)
        if prior is None:
            self._first_ends[producer_id] = end
        elif prior.state.is_prepare:
            self._ended.setdefault(producer_id, Tally()).finish(prior, end)

    def _supersede(self, former: int, view: CoordinatorView, successor: int, end: End) -> None:
        self._time(former, end)
        prior = self._views.get(former)
        held = prior.participants if prior is not None else frozenset()
        self._views[former] = replace(view, superseded_by=successor, participants=held)

    def _view(
        self, transactional_id: str, record: Record, value: TransactionLogValue, coordinator_epoch: int
    ) -> CoordinatorView:
        return CoordinatorView(
            transactional_id=transactional_id,
            log_partition=self.log_partition,
            log_offset=record.offset,
            state=value.state,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            start_ms=value.start_ms,
            last_update_ms=value.last_update_ms,
            record_timestamp_ms=record.timestamp,
            participants=frozenset(
                TopicPartition(topic, partition)
                for topic, partitions in value.partitions or ()
                for partition in partitions
            ),
            coordinator_epoch=coordinator_epoch,
        )

    def facts(self, *, live_only: bool) -> Iterator[TransactionSeen | TransactionalIdGone]:
        """What the range says about each producer id, and the last tombstone of each id that has one.

        A tombstone counts even where the id has come back since: it ends what was known under a former producer
        id, which the new one does not name. What came after it has a higher offset, and wins.

        `live_only` is for the first reading of a log: to the verdict an idle id equals an absent one, and loading
        a million idle ids would cost minutes.
        """
        for producer_id, view in self._views.items():
            if view.is_live or not live_only:
                yield self._fact(producer_id, view, timed=not live_only)
        if not live_only:
            for transactional_id, offset in self._gone.items():
                yield TransactionalIdGone(transactional_id, self.log_partition, offset)

    def _fact(self, producer_id: int, view: CoordinatorView, *, timed: bool) -> TransactionSeen:
        """One producer id's fact; what a first reading finds ended before us is no news and is not timed."""
        held = self._held.get(producer_id, frozenset())
        held = held - view.participants if view.is_live else held
        if not timed:
            return TransactionSeen(producer_id, view, held)
        ended = self._ended.get(producer_id)
        return TransactionSeen(
            producer_id,
            view,
            held,
            ended.latencies() if ended is not None else (),
            self._first_ends.get(producer_id),
        )
