"""A watcher without Spark, as a process: `python -m support.speaking_process BROKERS EVENTS_TOPIC TOPIC CHECKPOINT`.

Its ledger, leases and sinks are those of the product, composed by `Watch`. What Spark finds in the logs, it finds by
asking the leaders twice a second. It prints `ready`, and `speaks` or `silent` whenever that changes.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading

from txnwatch.app import Watch
from txnwatch.config import RunSettings
from txnwatch.named_files import NamedFiles
from txnwatch.state.evidence.screening import open_spans, screen
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.values import SpanStart, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster

_PAUSE_S = 0.5


class Finder:
    """What has been open and owned by nobody since the last look, each once."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._admin = ClusterAdmin(cluster)
        self._partitions = [TopicPartition(topic, number) for number in cluster.refresh().topics[topic].partitions]
        self._found: set[SpanStart] = set()

    def look(self) -> list[Finding]:
        """Asks the leaders, and the coordinators if there is something new."""
        readings = self._admin.read_partitions(self._partitions).values()
        spans = [one for one in open_spans(readings, wall_clock_ms()) if one.start not in self._found]
        if not spans:
            return []
        listing = self._admin.list_transactions([span.producer_id for span in spans])
        descriptions = self._admin.describe_transactions([row.transactional_id for row in listing.transactions])
        candidates = screen(spans, descriptions, listing, wall_clock_ms(), None).candidates
        self._found.update(one.start for one in candidates)
        return [*candidates]


def say(line: str) -> None:
    """Writes a line for the test that runs the process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(brokers: str, events: str, topic: str, checkpoint: str) -> None:
    """Runs until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = RunSettings(bootstrap_server=brokers, events_topic=events, topics=topic, checkpoint=checkpoint)
    watch = Watch(settings, NamedFiles(), logging.getLogger("txnwatch"), lambda _: None)
    watch.check()
    ledger = watch.open_ledger()
    assert watch.sinks is not None
    finder, said = Finder(watch.sinks.cluster, topic), None
    say("ready")
    while not stop.wait(_PAUSE_S):
        try:
            found = finder.look()
        except BrokerError:
            found = []
        watch.sinks.on_batch(found)
        if said is not ledger.speaks:
            said = ledger.speaks
            say("speaks" if said else "silent")
    watch.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
