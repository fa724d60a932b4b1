"""One request to each of many brokers, and one answer or error for each broker or item that was asked for.

Law: the result is never shorter than the request, and an error is a value. So an incomplete answer never looks
complete: a broker that cannot be reached, a broker that does not answer, and an item that an answer lacks all have a
`BrokerError` in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId
from txnwatch.streaming.client.connection import Connection

RequestOf = Callable[[Connection], Any]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Brokers(Protocol):
    """How brokers are asked; `Cluster` is one."""

    timeout_s: float

    def ask(self, requests: Mapping[BrokerId, RequestOf], timeout_s: float) -> dict[BrokerId, Any]:
        """Sends one request to each broker; the answer or the BrokerError of each."""


def fan_out(
    requests: Mapping[BrokerId, RequestOf],
    reach: Callable[[BrokerId], Connection],
    send: Callable[[Connection, Any], None],
    receive: Callable[[BrokerId, Connection], Any],
) -> dict[BrokerId, Any]:
    """Sends all requests, then receives all answers, so the brokers work in parallel.

    A broker that throttles txnwatch gets its request last, when it reads again. Returns the answer or the BrokerError
    of each broker id in `requests`.
    """
    answers: dict[BrokerId, Any] = {}
    reached: dict[BrokerId, Connection] = {}
    for node in requests:
        try:
            reached[node] = reach(node)
        except BrokerError as exc:
            answers[node] = exc
    waiting: dict[BrokerId, Connection] = {}
    for node, connection in sorted(reached.items(), key=lambda one: one[1].throttled_s):
        try:
            send(connection, requests[node](connection))
            waiting[node] = connection
        except BrokerError as exc:
            answers[node] = exc
    for node, connection in waiting.items():
        try:
            answers[node] = receive(node, connection)
        except BrokerError as exc:
            answers[node] = exc
    return answers


def ask_for_each(
    brokers: Brokers,
    items: Mapping[BrokerId, Sequence[K]],
    request: Callable[[Sequence[K]], RequestOf],
    decode: Callable[[Any, BrokerId], Mapping[K, V]],
    timeout_s: float | None = None,
) -> dict[K, V | BrokerError]:
    """Asks each broker for its items; the decoded answer or the error of each item, and of no other one.

    `decode` gets a broker's response and the broker's id.
    """
    found: dict[K, V | BrokerError] = {}
    requests = {node: request(wanted) for node, wanted in items.items()}
    answers = brokers.ask(requests, brokers.timeout_s if timeout_s is None else timeout_s)
    for node, wanted in items.items():
        answer = answers[node]
        if isinstance(answer, BrokerError):
            found.update(dict.fromkeys(wanted, answer))
        else:
            decoded = decode(answer, node)
            found.update({item: decoded.get(item, BrokerError("missing from the answer")) for item in wanted})
    return found
