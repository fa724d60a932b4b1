"""The incidents that a watch publishes, as they arrive."""

from __future__ import annotations

import threading
from collections.abc import Callable

from txnwatch.cli.one_shot import options_of
from txnwatch.config import EVENTS_TOPIC
from txnwatch.librdkafka import librdkafka_config
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.sinks.delivery.events_topic import ensure_topic
from txnwatch.state.model.incident import IncidentEvent


def follow_incidents(bootstrap: str, on_event: Callable[[IncidentEvent], None]) -> None:
    """Calls `on_event` in a thread of its own, for every event from the beginning; the topic need not be there yet."""
    settings = librdkafka_config(options_of(bootstrap, None))
    ensure_topic(settings, EVENTS_TOPIC)

    def follow() -> None:
        for event in read_events(settings, EVENTS_TOPIC, follow=True):
            if isinstance(event, IncidentEvent):
                on_event(event)

    threading.Thread(target=follow, daemon=True).start()
