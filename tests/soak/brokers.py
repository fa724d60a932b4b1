"""The settings of the soak's brokers: three replicas of everything; ids, producers and data expire soon."""

from __future__ import annotations

LOG_PARTITIONS = 10
_EXPIRES_MS = 120_000
BROKER = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": str(LOG_PARTITIONS),
    "transaction.state.log.segment.bytes": str(1 << 20),  # so that it is compacted
    "transactional.id.expiration.ms": str(_EXPIRES_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "30000",
    "producer.id.expiration.ms": str(_EXPIRES_MS),
    "producer.id.expiration.check.interval.ms": "30000",
    "log.retention.check.interval.ms": "60000",
    "auto.create.topics.enable": "false",
}
