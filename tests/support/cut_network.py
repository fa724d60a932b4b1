"""A cluster that a client reaches through forwarders, one for each broker, whose network can be cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from support.forwarder import Forwarder
from support.shim import Shim
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

_OUTSIDE = "OUTSIDE"
_READY_S = 180.0  # on a busy machine


class ReachedByForwarders(EmbeddedKafka):
    """Brokers talk to each other directly. The clocks of the brokers are those of their shims."""

    def __init__(self, directory: Path, brokers: int, shims: dict[int, Shim]) -> None:
        super().__init__(directory, brokers=brokers, listeners={_OUTSIDE: "PLAINTEXT"})
        self.ready_s = _READY_S
        self._shims = shims
        self._forwarders = {node: Forwarder(self._address(node)) for node in range(1, brokers + 1)}

    @property
    def outside(self) -> str:
        """host:port of every forwarder."""
        return ",".join(forwarder.address for forwarder in self._forwarders.values())

    @contextlib.contextmanager
    def forwarding(self) -> Iterator[None]:
        """The forwarders run while the block runs."""
        with contextlib.ExitStack() as open_ones:
            for forwarder in self._forwarders.values():
                open_ones.enter_context(forwarder).start()
            yield

    @contextlib.contextmanager
    def cut(self, nodes: Iterable[int]) -> Iterator[None]:
        """Nothing reaches these brokers from outside, and no answer comes, while the block runs."""
        with contextlib.ExitStack() as cut:
            for node in nodes:
                cut.enter_context(self._forwarders[node].cut())
            yield

    def start_broker(self, node: int) -> None:
        """Starts one broker with its clock."""
        with self._shims[node].preloaded():
            super().start_broker(node)

    def _address(self, node: int) -> tuple[str, int]:
        host, _, port = self.listener(_OUTSIDE, node).partition(":")
        return host, int(port)

    def _server_properties(self, node: int) -> dict[str, str]:
        properties = super()._server_properties(node)
        advertised = properties["advertised.listeners"]
        outside = self._forwarders[node].address
        return {**properties, "advertised.listeners": advertised.replace(self.listener(_OUTSIDE, node), outside)}
