"""A transactional producer that also commits offsets of consumer groups, with one request for each method."""

from __future__ import annotations

from kafka.protocol.producer import AddOffsetsToTxnRequest, TxnOffsetCommitRequest

from support.raw_producer import RawProducer
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch_demo.late_write import raise_for

_GROUP = 0  # key type of FindCoordinator


class OffsetProducer(RawProducer):
    """Adds a group's partition of `__consumer_offsets` to its transaction, or commits without that."""

    def add_offsets(self, group: str) -> None:
        """Sends AddOffsetsToTxn: the group's partition of `__consumer_offsets` becomes a participant."""
        self._at_coordinator(
            lambda _: AddOffsetsToTxnRequest(
                version=3,
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=group,
            )
        )

    def commit_offset(self, group: str, partition: TopicPartition, offset: Offset) -> None:
        """Sends TxnOffsetCommit, version 3, which does not add the group's partition of `__consumer_offsets`."""
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        offsets = topic.TxnOffsetCommitRequestPartition(
            version=3,
            partition_index=partition.partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=None,
        )
        request = TxnOffsetCommitRequest(
            version=3,
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[topic(version=3, name=partition.topic, partitions=[offsets])],
        )
        answer = self._at_coordinator_of(_GROUP, group, lambda _: request)
        for result in answer.topics[0].partitions:
            raise_for(result.error_code, f"TxnOffsetCommit of {group}")
