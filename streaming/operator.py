"""The stateful operator: rows to facts, the pure bucket, state back to rows. A shell; nothing is decided here.

One key is one bucket. Its producers live in two maps that take turns: writes go to the map of the current hour,
reads fall back to the other one, and at the turn of the hour the older map is cleared after what is still awaited
has been carried over. Idle producers so leave without a timer, and a barrier never walks them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from txnwatch.state.bucket import process
from txnwatch.state.bucket_state import BucketState
from txnwatch.state.codec import decode_bucket, decode_producer, encode_bucket, encode_producer
from txnwatch.state.facts import Barrier
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.transaction import ProducerState
from txnwatch.streaming.emitted_rows import encode_emitted
from txnwatch.streaming.row_facts import fact_of
from txnwatch.streaming.rows import SPEAKS_FOR_PARTITIONS

_EMITTED_ROW = Row("kind", "payload")


class BucketProcessor(StatefulProcessor):  # type: ignore[misc]
    """Runs `bucket.process` for one bucket and batch."""

    def __init__(self, policy: DetectionPolicy) -> None:
        self._policy = policy

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._bucket: ValueState = handle.getValueState("bucket", "row STRING")
        self._generations: tuple[MapState, MapState] = (
            handle.getMapState("producers_even", "producer_id BIGINT", "row STRING"),
            handle.getMapState("producers_odd", "producer_id BIGINT", "row STRING"),
        )

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - passed by keyword
    ) -> Iterator[Row]:
        """One batch of one bucket."""
        facts = [fact_of(row) for row in rows]
        stored = self._bucket.get()
        bucket = decode_bucket(stored[0]) if stored is not None else BucketState()
        before = stored[0] if stored is not None else None
        barrier = next(fact for fact in facts if isinstance(fact, Barrier))
        generation = barrier.coordinator_listed_ms // self._policy.idle_retention_ms
        store = MapStore(self._generations, generation)
        if bucket.generation != generation:
            store.turn(bucket, generation)
        emitted = process(bucket, store, facts, self._policy, speaks_for_partitions=key[0] == SPEAKS_FOR_PARTITIONS)
        after = encode_bucket(bucket)
        if after != before:
            self._bucket.update((after,))
        for said in emitted:
            yield _EMITTED_ROW(*encode_emitted(said))

    def close(self) -> None:
        """Nothing to release."""


class MapStore:
    """A ProducerStore over the two maps."""

    def __init__(self, generations: tuple[MapState, MapState], generation: int) -> None:
        self._current = generations[generation % 2]
        self._former = generations[(generation + 1) % 2]

    def get(self, producer_id: int) -> ProducerState | None:
        """The producer, wherever it was written last."""
        row = self._current.getValue((producer_id,)) or self._former.getValue((producer_id,))
        return decode_producer(producer_id, row[0]) if row is not None else None

    def put(self, producer: ProducerState) -> None:
        """Writes to the current map; a copy in the former one is older and never read again."""
        self._current.updateValue((producer.producer_id,), (encode_producer(producer),))

    def turn(self, bucket: BucketState, generation: int) -> None:
        """Makes the older map the current one: empties it, after carrying over who is awaited.

        After a pause of more than one period both maps are old, and only who is awaited is kept.
        """
        kept = {producer_id: self.get(producer_id) for producer_id in bucket.agenda}
        self._current.clear()
        if generation - bucket.generation > 1:
            self._former.clear()
        for producer in kept.values():
            if producer is not None:
                self.put(producer)
        bucket.generation = generation
