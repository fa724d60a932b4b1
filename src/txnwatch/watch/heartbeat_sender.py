"""The heartbeat of this watch: told every few seconds while barriers are judged, and never waited for.

Law: it says what the watch has judged and nothing more. A watch that judges nothing tells nothing, so that what was
told last grows old. What is unproven is told as the coverage of the watch has it: one election changes no heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txnwatch import __version__
from txnwatch.sinks.delivery.heartbeat import MOST_NAMES, Heartbeat
from txnwatch.state.model.errors import BrokerError, SinkError
from txnwatch.state.model.findings import BucketCount, Emitted, LeftUnread
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.progress import Progress
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.watch.missing_evidence import Evidence, is_of_log

_TOPICS_MS = 60_000


@dataclass(slots=True)
class Told:
    """One place that heartbeats go to, and the pause between two."""

    beat: Callable[[Heartbeat], None]
    pause_ms: int
    due_ms: int = 0


@dataclass(slots=True)
class Pulse:
    """Makes heartbeats.

    Attributes:
        instance: the name of this watch.
        progress: how far the query is, if it tells.
        places: where they are told.
        evidence: what the watch has no evidence of, after the batch that is told.
    """

    instance: str
    cluster_id: str
    cluster: Cluster
    options: SourceOptions
    progress: Callable[[], Progress | None]
    places: Sequence[Told]
    evidence: Callable[[], Evidence]
    _partitions: tuple[int, int] = (0, 0)
    _topics_due_ms: int = 0

    def on_batch(self, emitted: Sequence[Emitted], now_ms: int) -> None:
        """One micro-batch."""
        barrier = next((said.barrier for said in emitted if isinstance(said, BucketCount)), None)
        due = [place for place in self.places if now_ms >= place.due_ms]
        if barrier is None or not due:
            return
        heartbeat = self._heartbeat(barrier, emitted, now_ms)
        for place in due:
            place.due_ms = now_ms + place.pause_ms
            try:
                place.beat(heartbeat)
            except SinkError:
                continue  # the outbox of that sink says what is wrong with it

    def _heartbeat(self, barrier: int, emitted: Sequence[Emitted], now_ms: int) -> Heartbeat:
        evidence = self.evidence()
        unproven = evidence.unproven
        left = {said.partition: said.from_offset for said in emitted if isinstance(said, LeftUnread)}
        progress = self.progress()
        scanned, by_census = self._watched(now_ms)
        return Heartbeat(
            instance=self.instance,
            version=__version__,
            cluster_id=self.cluster_id,
            time_ms=now_ms,
            judged_ms=now_ms,
            barrier=barrier,
            scanned_partitions=scanned,
            census_partitions=by_census,
            unproven_partitions=len(unproven),
            unproven_names=tuple(map(str, unproven[:MOST_NAMES])),
            furthest_behind=progress.furthest_behind(left) if progress is not None else 0,
            unread_log_partitions=sum(map(is_of_log, unproven)),
            is_coordinator_read=evidence.is_log_read,
        )

    def _watched(self, now_ms: int) -> tuple[int, int]:
        """Partitions that are scanned, and those that are watched by census; asked for now and then."""
        if now_ms >= self._topics_due_ms:
            self._topics_due_ms = now_ms + _TOPICS_MS
            try:
                topics = self.cluster.refresh().topics.values()
            except BrokerError:
                return self._partitions
            scanned = sum(len(topic.partitions) for topic in topics if self.options.watches(topic))
            self._partitions = scanned, sum(len(topic.partitions) for topic in topics if self.options.counts(topic))
        return self._partitions
