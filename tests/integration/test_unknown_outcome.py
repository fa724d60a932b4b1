"""`abort` of a hang whose outcome no log shows, on a real broker: only a person who says so may end it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from txnwatch.cli.main import main
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

ACCEPTED = "--accept-unknown-outcome"
DOUBT = "other transactions may have used the epoch of the data, and one of them may have committed"
QUESTION = "Has the owner of the application said that its client was not told that it is committed?"


class TerminalOf(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def hung(cluster: Cluster) -> tuple[TopicPartition, RawProducer]:
    """Two committed transactions of one epoch, then a late write: nobody can know whose. The id has begun anew."""
    (at,) = create_topic(cluster, unique("unknown"))
    producer = RawProducer(cluster, unique("unknown")).init()
    for _ in range(2):
        producer.add(at)
        producer.produce(at)
        producer.end(commit=True)
        await_end(cluster, producer, at)
    producer.produce(at)
    RawProducer(cluster, producer.transactional_id).init()
    return at, producer


Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def run_abort(
    kafka: EmbeddedKafka, hung: tuple[TopicPartition, RawProducer], capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs the command; returns the exit code, the one row, or nothing if there is no answer, and the errors."""
    where = ("--topic", hung[0].topic, "--partition", "0", "--bootstrap-server", kafka.bootstrap_servers)

    def ran(*flags: str) -> tuple[int, dict[str, Any], str]:
        code = main(["abort", *where, "--format", "json", *flags])
        out, err = capsys.readouterr()
        (row,) = json.loads(out)["rows"] if out else [{}]
        return code, row, err

    return ran


def test_an_unknown_outcome_is_ended_only_by_who_says_so(
    cluster: Cluster, hung: tuple[TopicPartition, RawProducer], run_abort: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, producer = hung

    def abort(*flags: str) -> tuple[int, dict[str, Any], str]:
        code, row, err = run_abort("--producer-id", str(producer.producer_id), *flags)
        assert (row["expected_outcome"], row["outcome_doubt"]) == ("unknown", "epoch_shared")
        return code, row, err

    def is_open() -> bool:
        return ClusterAdmin(cluster).read_partitions([at])[at].open_transaction(producer.producer_id) is not None

    for flags in (("--yes",), ("--yes", "--dry-run")):
        code, row, _ = abort(*flags)
        assert (code, row["result"], is_open()) == (5, "refused (outcome_unknown)", True)
        assert DOUBT in row["detail"], "the reason"
        assert "ask the application's owner whether its client was told that it is committed" in row["detail"]
        assert f"{ACCEPTED} allows it" in row["detail"]
    code, row, err = abort()
    assert (code, row["result"], is_open()) == (5, "refused", True)
    assert f"use --yes {ACCEPTED}" in err, "nobody can be asked here"
    code, row, _ = abort("--dry-run")
    assert (code, row["result"]) == (0, "dry_run")
    assert row["detail"].startswith("would ask, and write the ABORT marker if the answer is yes: ")
    monkeypatch.setattr("sys.stdin", TerminalOf("no\n"))
    code, row, err = abort()
    assert (code, row["result"], is_open()) == (5, "refused", True)
    assert DOUBT in err
    assert f"{QUESTION} With yes the ABORT marker is written. [yes/no]" in err
    assert "Write the marker?" not in err
    code, row, _ = abort("--dry-run", "--yes", ACCEPTED)
    assert (code, row["result"]) == (0, "dry_run")
    assert row["detail"].startswith("would write the ABORT marker: ")
    code, row, _ = abort("--yes", ACCEPTED)
    assert (code, row["result"], is_open()) == (0, "verified", False)
    assert f"Its outcome was unknown: {DOUBT}" in row["detail"]


def test_a_commit_that_a_person_knows_is_completed_and_asked_for_again_it_is_over(
    cluster: Cluster, hung: tuple[TopicPartition, RawProducer], run_abort: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, producer = hung
    row_of_it = ClusterAdmin(cluster).read_partitions([at])[at].open_transaction(producer.producer_id)
    assert row_of_it is not None
    abort = partial(run_abort, "--start-offset", str(row_of_it.txn_start_offset))
    code, row, _ = abort("--result", "commit", "--yes")
    assert (code, row["result"]) == (5, "refused (outcome_unknown)")
    assert f"{ACCEPTED} allows it" in row["detail"]
    monkeypatch.setattr("sys.stdin", TerminalOf("yes\n"))
    code, row, err = abort("--result", "commit")
    assert "said that its client was told that it is committed? With yes the COMMIT marker is written." in err
    assert "If it was not committed, consumers receive data that was aborted." in err
    assert (code, row["result"]) == (0, "verified")
    for flags in ((), ("--yes",), ("--dry-run",)):
        code, row, _ = abort("--result", "commit", *flags)
        assert (code, row["result"], row["producer_id"]) == (0, "already_closed", producer.producer_id)
        assert row["detail"].startswith("the COMMIT marker at offset ")
    code, row, err = abort("--yes")
    assert (code, row) == (1, {}), "the marker of the other kind is not what was asked for"
    assert "expected the requested open transaction" in err
