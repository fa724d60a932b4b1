"""The files of a real broker, read by `txnwatch decode` and by Kafka's own DumpLogSegments.

One broker gets transactions that end and one that stays open, and is stopped, so that it writes its snapshots. Each
file in the directory of the partition that has transactions is then decoded twice.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.history import await_end
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic
from txnwatch.cli.main import main
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, DurationMs, TopicPartition
from txnwatch.streaming.log.lookups import list_extents
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

NAME = "decode-files"
PROPERTIES = {"transaction.state.log.num.partitions": "1"}
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
OLDER = "3.9.2"  # its tools print name=value, not JSON
OLDER_FORMATTER = "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter"
FIELD = re.compile(r"(\w+): (\S+)")
ORDERS = TopicPartition("orders", 0)
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


@dataclass(frozen=True)
class Written:
    """What a broker has left on its disk, and what is known about it from elsewhere."""

    kafka: EmbeddedKafka
    open_id: int
    open_from: int
    end: int
    console: str

    def file(self, partition: TopicPartition, suffix: str) -> Path:
        """The newest file of the partition with this suffix."""
        return max((self.kafka.log_directory(1) / str(partition)).glob(f"*{suffix}"))

    def dumped(self, path: Path, *how: str) -> str:
        """What DumpLogSegments prints."""
        done = self.kafka.tool("org.apache.kafka.tools.DumpLogSegments", *how, "--files", str(path))
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def lines(self, path: Path) -> list[dict[str, str]]:
        """The lines that DumpLogSegments prints about the entries of a file."""
        return [dict(FIELD.findall(line)) for line in self.dumped(path).splitlines() if FIELD.match(line)]


@pytest.fixture(scope="module")
def written(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with files_of(clusters, tmp_path_factory.mktemp(NAME)) as found:
        yield found


@contextlib.contextmanager
def files_of(
    clusters: Clusters, directory: Path, tools: EmbeddedKafka | None = None, formatter: str = FORMATTER
) -> Iterator[Written]:
    """The files of a broker that has stopped, and its log as the console consumer of some tools printed it."""
    kafka = clusters.start(NAME, lambda: EmbeddedKafka(directory, properties=PROPERTIES))
    with contextlib.closing(connect(kafka)) as cluster:
        create_topic(cluster, ORDERS.topic)
        producer = RawProducer(cluster, "ends").init()
        for commit in (True, False, True, False):
            producer.add(ORDERS)
            producer.produce(ORDERS, [b"one", b"two"])
            producer.end(commit=commit)
            await_end(cluster, "ends")
        RawProducer(cluster, "old version").init()
        stays_open = RawProducer(cluster, "stays open", timeout_ms=DurationMs(600_000)).init()
        stays_open.add(ORDERS)
        first = stays_open.produce(ORDERS, [b"three"])
        stays_open.produce(ORDERS, [b"four"])
        end = list_extents(cluster, [ORDERS])[ORDERS].end
        count = list_extents(cluster, [LOG])[LOG].end
    console = (tools or kafka).tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", LOG.topic, "--from-beginning"),
        *("--formatter", formatter, "--max-messages", str(count), "--timeout-ms", "20000"),
    )
    kafka.stop()
    yield Written(kafka, stays_open.producer_id, first, end, console.stdout)
    clusters.end(NAME)


def decoded(capsys: pytest.CaptureFixture[str], path: Path) -> list[dict[str, Any]]:
    code = main(["decode", "--file", str(path), "--count", "100000", "--format", "json"])
    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["not_checked"], answer["left_out"]) == (0, [], [])
    rows: list[dict[str, Any]] = answer["rows"]
    return rows


def number(text: str) -> int | None:
    """A number of DumpLogSegments; None for -1 and for an empty OptionalLong."""
    found = re.search(r"-?\d+", text)
    return None if found is None or int(found[0]) < 0 else int(found[0])


def test_a_snapshot_is_read_as_kafka_reads_it(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    path = written.file(ORDERS, ".snapshot")
    rows = decoded(capsys, path)
    assert (rows[0]["producer_id"], rows[0]["current_transaction_start_offset"]) == (written.open_id, written.open_from)
    assert int(path.stem) == written.end
    printed = {
        int(line["producerId"]): (
            number(line["producerEpoch"]),
            number(line["coordinatorEpoch"]),
            number(line["currentTxnFirstOffset"]),
            number(line.get("lastSequence", "-1")),
            number(line.get("lastOffset", "-1")),
            number(line["lastTimestamp"]),
        )
        for line in written.lines(path)
    }
    assert printed == {
        row["producer_id"]: (
            row["producer_epoch"],
            row["latest_coordinator_epoch"],
            row["current_transaction_start_offset"],
            row["last_sequence"],
            row["last_offset"],
            row["last_timestamp_ms"],
        )
        for row in rows
    }
    assert len(printed) == 2


def test_the_other_files_are_named(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    others = {
        path for path in written.file(ORDERS, ".log").parent.iterdir() if path.suffix not in {".log", ".snapshot"}
    }
    assert {path.suffix or path.name for path in others} >= {".index", ".timeindex", ".txnindex", ".metadata"}
    for path in others:
        assert main(["decode", "--file", str(path)]) == 1
        assert re.search("read it with cat|decode the .log file", capsys.readouterr().err)


def test_a_segment_of_the_coordinators_log_is_recognised_under_any_name(
    written: Written, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = written.file(LOG, ".log")
    there = decoded(capsys, path)
    assert {row["transactional_id"] for row in there} == {"ends", "old version", "stays open"}
    elsewhere = tmp_path / "orders-0" / "evidence.bin"
    elsewhere.parent.mkdir()
    shutil.copy(path, elsewhere)
    assert decoded(capsys, elsewhere) == [{**row, "partition": None} for row in there]
    packed = tmp_path / "00000000000000000000.log.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert decoded(capsys, packed) == [{**row, "partition": None} for row in there]


def test_a_segment_of_a_topic_is_not_taken_for_the_coordinators_log(
    written: Written, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = shutil.copy(written.file(ORDERS, ".log"), tmp_path / "segment")
    kinds = [row["kind"] for row in decoded(capsys, path)]
    assert kinds == [*["transactional", "COMMIT", "transactional", "ABORT"] * 2, "transactional", "transactional"]
    assert b"three" in path.read_bytes()


def test_the_output_of_kafkas_tools_is_read_as_the_segment(
    written: Written, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = written.file(LOG, ".log")
    there = decoded(capsys, path)
    pasted = tmp_path / "pasted.txt"
    pasted.write_text(written.dumped(path, "--transaction-log-decoder"))
    assert decoded(capsys, pasted) == there
    pasted.write_text(written.console)
    unknown = {"partition": None, "offset": None, "timestamp_ms": None}
    assert decoded(capsys, pasted) == [{**row, **unknown} for row in there]


@pytest.mark.long
def test_the_output_of_older_tools_is_read_as_far_as_it_goes(
    clusters: Clusters, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    older = EmbeddedKafka(tmp_path / "older", version=OLDER)
    older.directory.mkdir()
    with files_of(clusters, tmp_path / "newest", older, OLDER_FORMATTER) as written:
        path, pasted = written.file(LOG, ".log"), tmp_path / "pasted.txt"
        there = decoded(capsys, path)
        dump = older.tool("kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(path)).stdout
        not_there = dict.fromkeys(["version", "previous_producer_id", "next_producer_id", "client_transaction_version"])
        for text, missing in (
            (dump, ["start_time_ms"]),
            (written.console, ["partition", "offset", "timestamp_ms"]),
        ):
            pasted.write_text(text)
            expected = [{**row, **not_there, **dict.fromkeys(missing)} for row in there]
            assert without_null(decoded(capsys, pasted)) == without_null(expected)


def without_null(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The older tools print an id without a transaction as one with no partitions."""
    return [{**row, "topic_partitions": row["topic_partitions"] or []} for row in rows]
