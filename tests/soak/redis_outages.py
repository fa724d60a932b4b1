"""A Redis that is killed, comes back, and sometimes has lost all it had."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import redis

from support.event_tail import EventTail
from support.redis_view import RedisView
from txnwatch.state.model.incident import IncidentEvent
from txnwatch_demo.embedded.real_servers import EmbeddedRedis

RIGHT_WITHIN_S = 60.0


@dataclass
class RedisOutages:
    """The outages of one Redis, and how long after each one it agreed with the events topic again."""

    server: EmbeddedRedis
    cluster_id: str
    tail: EventTail
    count: int = 0
    flushed: int = 0
    right_after_s: list[float] = field(default_factory=list)
    is_away: bool = False
    _back_s: float | None = None

    def go(self) -> None:
        """kill -9."""
        self.keep_up()
        self._back_s = None
        self.is_away = True
        self.server.kill()

    def come(self) -> None:
        """It starts again; after every second outage it is empty."""
        self.server.start()
        self.is_away = False
        self.count += 1
        if self.count % 2 == 0:
            self.flushed += 1
            with contextlib.closing(redis.Redis.from_url(self.server.url)) as client:
                client.flushall()
        self._back_s = time.time()

    def keep_up(self) -> None:
        """Notes when it agrees with the topic again."""
        if self._back_s is not None and self.agrees():
            self.right_after_s.append(time.time() - self._back_s)
            self._back_s = None

    def await_agreement(self) -> None:
        """Waits until it agrees with the topic again, but no longer than it may take."""
        while self._back_s is not None and time.time() < self._back_s + RIGHT_WITHIN_S:
            self.keep_up()
            time.sleep(0.5)

    def agrees(self) -> bool:
        """Whether Redis lists exactly the open incidents, and each of its incidents is as on the topic."""
        latest = latest_of(self.tail)
        is_open = {incident_id for incident_id, event in latest.items() if event.is_open}
        with contextlib.suppress(redis.RedisError), self._view() as view:
            held = view.view()
            as_on_topic = {key: (latest[key].sequence, latest[key].status) for key in held if key in latest}
            return set(view.open_ids()) == is_open and held == as_on_topic
        return False

    def problems(self) -> list[str]:
        """What is wrong at the end of a run."""
        late = [seconds for seconds in self.right_after_s if seconds > RIGHT_WITHIN_S]
        wrong = [f"after an outage Redis was right only after {seconds:.0f} s" for seconds in late]
        if self.count > len(self.right_after_s):
            wrong.append(
                f"after {self.count - len(self.right_after_s)} outages Redis was not right before the next one"
            )
        return wrong

    @contextlib.contextmanager
    def _view(self) -> Iterator[RedisView]:
        with contextlib.closing(RedisView(self.server.url, self.cluster_id)) as view:
            yield view


def latest_of(tail: EventTail) -> dict[str, IncidentEvent]:
    """The last event of each incident."""
    return {one.event.incident_id: one.event for one in tail.published}
