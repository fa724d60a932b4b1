"""Client quotas of a real broker, set and taken away over the wire (AlterClientQuotas)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kafka.protocol.admin import AlterClientQuotasRequest

from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import CLIENT_ID

CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE = "consumer_byte_rate", "request_percentage"


@contextlib.contextmanager
def quota(cluster: Cluster, key: str, value: float, client_id: str = CLIENT_ID) -> Iterator[None]:
    """The quota of everybody with this client id, for as long as the block runs."""
    _alter(cluster, client_id, key, value)
    try:
        yield
    finally:
        _alter(cluster, client_id, key, None)


def _alter(cluster: Cluster, client_id: str, key: str, value: float | None) -> None:
    entry = AlterClientQuotasRequest.EntryData
    connection = cluster.any_connection()
    version = connection.require_version(AlterClientQuotasRequest, highest=1)
    request = AlterClientQuotasRequest(
        version=version,
        entries=[
            entry(
                version=version,
                entity=[entry.EntityData(version=version, entity_type="client-id", entity_name=client_id)],
                ops=[entry.OpData(version=version, key=key, value=value or 0.0, remove=value is None)],
            )
        ],
        validate_only=False,
    )
    (answer,) = cluster.call(connection, request).entries
    assert answer.error_code == 0, answer
