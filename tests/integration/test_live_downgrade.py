"""A transaction that is open while transaction.version is lowered: only a new leader of its part of the log ends it.

Measured on Kafka 4.3.1: EndTxn and InitProducerId are answered with CONCURRENT_TRANSACTIONS for ever, and the
coordinator does not abort at the timeout. `explain` has to name the way that works, with partition and broker.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, UpdateFeatureType

from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long
SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
TIMEOUT_MS, PRODUCE, END, OLD_END = 12_000, 12, 5, 4


@pytest.fixture
def downgraded(clusters: Clusters, tmp_path: Path) -> Iterator[EmbeddedKafka]:
    yield clusters.start("downgraded", lambda: EmbeddedKafka(tmp_path, properties=SOON))
    clusters.end("downgraded")


def lower_transaction_version(kafka: EmbeddedKafka) -> None:
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.update_features({"transaction.version": (UpdateFeatureType.SAFE_DOWNGRADE, 0)})
        time.sleep(3.0)  # each broker takes the metadata over when it reads it


def test_explain_names_the_broker_whose_restart_ends_it(
    downgraded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(connect(downgraded)) as cluster:
        (partition,) = create_topic(cluster, unique("lowered"))
        producer = RawProducer(cluster, unique("app"), timeout_ms=TIMEOUT_MS).init()
        producer.produce(partition, version=PRODUCE)
        producer.end(commit=True, version=END)
        producer.produce(partition, version=PRODUCE)
        lower_transaction_version(downgraded)
        for version, refused in ((END, "UNSUPPORTED_VERSION"), (OLD_END, "CONCURRENT_TRANSACTIONS")):
            with pytest.raises(TxnwatchError, match=refused):
                producer.end(commit=True, version=version)
        server = ("--bootstrap-server", downgraded.bootstrap_servers, "--format", "json")
        capsys.readouterr()
        assert main(["explain", producer.transactional_id, *server]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        text = " ".join([*row["text"], *(step["text"] for step in row["steps"])])
        assert "its coordinator has not aborted it" in text
        assert re.search(
            r"CONCURRENT_TRANSACTIONS, or there is none\): restart broker 1 \(.*\), or move the leader of "
            r"__transaction_state-\d+ to another broker\.",
            text,
        )
        assert main(["fence", producer.transactional_id, *server, "--yes"]) == 1
        failed = json.loads(capsys.readouterr().out)["rows"][0]["detail"]
        assert "answered with: CONCURRENT_TRANSACTIONS; restart broker 1 (" in failed
        assert "or move the leader of __transaction" in failed
        downgraded.broker(1).stop()
        downgraded.start_broker(1)

        def is_aborted() -> bool:
            found = ClusterAdmin(cluster).describe_transactions([producer.transactional_id])[producer.transactional_id]
            return isinstance(found, DescribedTransaction) and found.state is TransactionState.COMPLETE_ABORT

        eventually(is_aborted, 60.0, "the coordinator to abort it")
