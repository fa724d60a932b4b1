"""When a stop hands the lease over: after the last event, and before a destination that may not answer."""

from __future__ import annotations

from support.ledger_world import LedgerWorld
from support.recording_sink import RecordingMirror
from support.shared_log import SharedLog
from txnwatch.sinks.delivery.outbox import MirrorOutbox
from txnwatch.state.model.values import TimestampMs


def test_the_lease_is_handed_over_between_the_topic_and_the_mirrors() -> None:
    world, log, order = LedgerWorld(), SharedLog(), list[str]()

    class Mirror(MirrorOutbox):
        def deliver_last(self, now_ms: TimestampMs) -> None:
            order.append("the mirror")
            super().deliver_last(now_ms)

    mirror = Mirror("mirror", RecordingMirror("mirror"), world.reports)
    ledger = world.another(log, name="one", mirrors=[mirror])
    ledger.on_batch([])
    log.is_away = True
    world.now_ms += 500
    ledger.on_batch([world.hang()])
    log.is_away = False
    ledger.deliver_last(lambda: order.append(f"the lease, after {len(log.records)} event"))
    assert order == ["the lease, after 1 event", "the mirror"]
