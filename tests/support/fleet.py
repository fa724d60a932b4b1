"""Healthy applications that run while a test disturbs the cluster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from txnwatch_demo.embedded.applications import (
    Application,
    exactly_once_copier,
    idempotent_writer,
    transactional_writer,
)

_PAUSE_S = 0.5
_INIT_S = 60.0  # an application that starts waits so long for its coordinator


@dataclass
class Fleet:
    """Applications; one that a disturbance has ended is started again under the same transactional id."""

    makers: dict[str, Callable[[], Application]]
    running: dict[str, Application] = field(default_factory=dict)
    restarts: int = 0
    steps: int = 0

    def keep_up(self) -> None:
        """Starts each application that does not run; one that cannot start is tried again at the next call."""
        for name, make in self.makers.items():
            held = self.running.get(name)
            if held is not None and held.error is None:
                continue
            if held is not None:
                self.restarts += 1
                self.steps += held.steps
                del self.running[name]
            with contextlib.suppress(KafkaException):
                self.running[name] = make().start()

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[None]:
        """Keeps them up in a thread while the block runs, and stops them then."""
        stop = threading.Event()

        def keep_up() -> None:
            while not stop.wait(_PAUSE_S):
                self.keep_up()

        thread = threading.Thread(target=keep_up, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_INIT_S)
            self.stop()

    def stop(self) -> None:
        """Stops all of them in order."""
        for application in self.running.values():
            application.stop()
            self.steps += application.steps


def fleet_of(bootstrap: str, source: str, target: str, *, writers: int, copiers: int) -> Fleet:
    """Transactional writers, copiers with exactly-once semantics, and one idempotent writer."""
    makers: dict[str, Callable[[], Application]] = {}
    for number in range(writers):
        name, pause_s = f"writer-{number}", 0.1 + 0.05 * (number % 10)
        makers[name] = lambda name=name, pause_s=pause_s: transactional_writer(  # type: ignore[misc]
            bootstrap, name, source, pause_s=pause_s
        )
    for number in range(copiers):
        name = f"copier-{number}"
        makers[name] = lambda name=name: exactly_once_copier(bootstrap, name, source, target)  # type: ignore[misc]
    makers["audit"] = lambda: idempotent_writer(bootstrap, "audit", source)
    return Fleet(makers)
