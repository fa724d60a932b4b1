"""Captures bytes of a real broker, with the output of Kafka's own decoder for them: kafka-<version>.json beside this.

    PYTHONPATH=tests python tests/golden/capture.py [VERSION]    (a 4.x: it needs the feature transaction.version)

Runs the history of support/history.py on an embedded broker, reads its logs raw, and keeps the smallest batch of each
codec, one marker of each kind, and a record of the coordinator's log for each version, state and set of tagged fields.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.history import FIRST_FEATURES, PROPERTIES, History, make_history
from support.kafka_tools import CODECS, DumpedBatch, Json, dump_log
from support.raw_log import RawBatch, read_log
from support.servers import connect
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch_demo.embedded.jars import KAFKA_VERSION
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

Captured = list[tuple[RawBatch, DumpedBatch]]
_UNTAGGED = frozenset(
    {
        "producerId",
        "producerEpoch",
        "transactionTimeoutMs",
        "transactionStatus",
        "transactionPartitions",
        "transactionLastUpdateTimestampMs",
        "transactionStartTimestampMs",
    }
)


def capture(kafka: EmbeddedKafka) -> Json:
    """The whole file."""
    history = make_history(kafka)
    return {
        "kafka": kafka.version,
        "captured_by": "PYTHONPATH=tests python tests/golden/capture.py",
        "decoded_by": f"org.apache.kafka.tools.DumpLogSegments {kafka.version}",
        "transaction_log": list(log_records(kafka, history)),
        "batches": list(data_batches(kafka, history)),
    }


def log_records(kafka: EmbeddedKafka, history: History) -> Iterator[Json]:
    """One record of the coordinator's log of each kind, and a tombstone."""
    seen: set[str] = set()
    for raw, dumped in read_both_ways(kafka, history.log, transaction_log=True):
        (record,), (printed,) = raw.records, dumped.records
        name = "tombstone" if printed["value"] is None else kind_of(printed["value"])
        if name not in seen and record.key is not None:
            seen.add(name)
            yield {
                "name": name,
                "key": record.key.hex(),
                "value": record.value.hex() if record.value is not None else None,
                "decoded": {"key": printed["key"], "value": printed["value"]},
            }


def kind_of(value: Json) -> str:
    """Version, state and tagged fields of a value."""
    status = value["data"]["transactionStatus"]  # its name since 4.4
    state = status if isinstance(status, str) else tuple(TransactionState)[status]
    tags = sorted(set(value["data"]) - _UNTAGGED)
    return f"v{value['version']} {state}" + (f" with {', '.join(tags)}" if tags else "")


def data_batches(kafka: EmbeddedKafka, history: History) -> Iterator[Json]:
    """The smallest batch of each codec, and a marker of each kind."""
    both = read_both_ways(kafka, history.data)
    smallest = sorted(both, key=lambda pair: len(pair[0].encoded))
    found: dict[str, Json] = {}
    for raw, dumped in smallest:
        marker = dumped.records[0].get("endTxnMarker")
        name = f"{marker} marker" if marker else f"data, {CODECS[raw.header.compression]}"
        encoded = {"name": name, "encoded": raw.encoded.hex()}
        found.setdefault(name, {**encoded, "decoded": dumped.fields, "records": dumped.records})
    yield from (found[name] for name in sorted(found))


def read_both_ways(
    kafka: EmbeddedKafka, partitions: tuple[TopicPartition, ...], *, transaction_log: bool = False
) -> Captured:
    """Every batch of the partitions as it was fetched, and as Kafka prints it."""
    dumped = dump_log(kafka, partitions, transaction_log=transaction_log)
    with contextlib.closing(connect(kafka)) as cluster:
        return [
            pair
            for partition in partitions
            for pair in zip(read_log(cluster, partition), dumped[partition], strict=True)
        ]


def main() -> None:
    """Captures one version."""
    version = sys.argv[1] if len(sys.argv) > 1 else KAFKA_VERSION
    target = Path(__file__).with_name(f"kafka-{version}.json")
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedKafka(Path(directory), version=version, properties=PROPERTIES, features=FIRST_FEATURES) as kafka,
    ):
        kafka.start(print)
        target.write_text(json.dumps(capture(kafka), indent=1) + "\n")
    print(f"wrote {target}")  # noqa: T201 - it is a script


if __name__ == "__main__":
    main()
