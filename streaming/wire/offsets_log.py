"""Keys of `__consumer_offsets`: which group has committed an offset of which partition.

Schema `OffsetCommitKey` of Kafka's group coordinator. Versions 0 and 1 have the same fields: the group, the topic and
the number of the partition. Classic groups, consumer groups and groups of Kafka Streams all have such records. Keys
with a higher version are about groups and their members. Values are never read.

The group coordinator writes these records, but their names come from clients: a name can be any text that fits into
32,767 bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.state.model.values import TopicPartition, is_topic_name
from txnwatch.streaming.wire.primitives import Reader

_HIGHEST_OFFSET_KEY = 1


class CommittedKey(NamedTuple):
    """What one offset was committed for."""

    group_id: str
    partition: TopicPartition


def decode_offset_key(key: memoryview | bytes) -> CommittedKey | None:
    """The group and the partition; None for a key that is about something else.

    Raises:
        WireError: a key of version 0 or 1 that no group coordinator writes.
    """
    reader = Reader(key)
    if not 0 <= reader.int16("key version") <= _HIGHEST_OFFSET_KEY:
        return None
    group_id, at = reader.string("group"), reader.position
    topic, number = reader.string("topic"), reader.int32("partition")
    reader.expect_end("offset commit key")
    if not is_topic_name(topic) or number < 0:
        raise WireError("topic", at, repr(f"{topic}-{number}"), "a topic and the number of a partition")
    return CommittedKey(group_id, TopicPartition(topic, number))
