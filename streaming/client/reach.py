"""Why no broker can be reached: the error of a new connection, for the person who looks for the cause."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.security import Security

_TIMEOUT_S, _BUDGET_S = 2.0, 5.0


def why_not_reached(bootstrap: Iterable[Endpoint], security: Security) -> str | None:
    """Connects, logs in and asks for the metadata; returns the error of each broker as text, None if one answers.

    A login may need another server, for example a token endpoint: then the text names that server.
    """
    with contextlib.closing(Cluster(bootstrap, security, timeout_s=_TIMEOUT_S)) as cluster:
        try:
            with cluster.budget(_BUDGET_S):
                cluster.refresh()
        except BrokerError as exc:
            return str(exc)
    return None
