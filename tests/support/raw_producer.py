"""A transactional producer for faults: any version of a request, any timestamp, and writes outside of a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafka.protocol.producer import InitProducerIdRequest

from txnwatch.state.model.values import Offset, TimestampMs, TopicPartition
from txnwatch_demo.late_write import END_VERSION, PRODUCE_VERSION, StepwiseProducer

CURRENT_TIMESTAMP = TimestampMs(-1)


class RawProducer(StepwiseProducer):
    """The producer of the demo, with the versions of newer clients and with what no client does."""

    def produce(
        self,
        partition: TopicPartition,
        values: Iterable[bytes] = (b"x",),
        *,
        version: int = PRODUCE_VERSION,
        timestamp_ms: TimestampMs = CURRENT_TIMESTAMP,
        transactional: bool = True,
    ) -> Offset:
        """Produces one batch; from version 12 on, the broker adds the partition to the transaction (KIP-890)."""
        records = list(values)
        stamp = time.time_ns() // 1_000_000 if timestamp_ms == CURRENT_TIMESTAMP else timestamp_ms
        batch = self._batch(partition, records, stamp, transactional=transactional)
        name = self.transactional_id if transactional else None
        return self._append(partition, batch, len(records), name, version)

    def ask_for_a_new_epoch(self) -> None:
        """Sends InitProducerId with the producer id and epoch that it has, as a client does after an error."""
        answer = self._at_coordinator(
            lambda connection: InitProducerIdRequest(
                version=connection.require_version(InitProducerIdRequest, highest=4),
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
            )
        )
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def end(self, *, commit: bool, version: int = END_VERSION) -> None:
        """Sends EndTxn; version 5 raises the producer epoch with every transaction (KIP-890)."""
        answer = self._send_end(commit=commit, version=version)
        if version > END_VERSION and answer.producer_id >= 0:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
