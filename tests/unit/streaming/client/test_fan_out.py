"""One answer or error for everything that was asked for, whatever the brokers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txnwatch.state.model.errors import AuthorizationError, BrokerError
from txnwatch.streaming.client.cluster import ask_for_each, fan_out


class Line:
    """A connection that does what the test sets, and notes when it sent and received."""

    def __init__(self, node: int, log: list[str], throttled_s: float = 0.0) -> None:
        self.node, self.log, self.throttled_s = node, log, throttled_s


class Round:
    """A fan-out over connections of which some fail."""

    def __init__(self, **fails: int) -> None:
        self.log: list[str] = []
        self.fails, self.throttled_s = fails, dict[int, float]()

    def _step(self, step: str, node: int) -> None:
        self.log.append(f"{step} {node}")
        if self.fails.get(step) == node:
            raise AuthorizationError(f"{step} failed") if step == "reach" else BrokerError(f"{step} failed")

    def reach(self, node: int) -> Any:
        self._step("reach", node)
        return Line(node, self.log, self.throttled_s.get(node, 0.0))

    def send(self, line: Any, request: str) -> None:
        assert request == f"request of {line.node}"
        self._step("send", line.node)

    def receive(self, node: int, line: Any) -> str:
        assert node == line.node
        self._step("receive", node)
        return f"answer of {node}"

    def ask(self, *nodes: int) -> dict[int, str]:
        requests: dict[int, Callable[[Any], Any]] = {node: lambda line: f"request of {line.node}" for node in nodes}
        return {node: str(one) for node, one in fan_out(requests, self.reach, self.send, self.receive).items()}


def test_every_broker_has_an_answer_or_its_error() -> None:
    expected = {1: "reach failed", 2: "send failed", 3: "receive failed", 4: "answer of 4"}
    assert Round(reach=1, send=2, receive=3).ask(1, 2, 3, 4) == expected


def test_all_requests_are_sent_before_the_first_answer_is_awaited() -> None:
    one = Round()
    one.ask(1, 2)
    assert one.log == ["reach 1", "reach 2", "send 1", "send 2", "receive 1", "receive 2"]


def test_a_broker_that_throttles_gets_its_request_last() -> None:
    one = Round()
    one.throttled_s[1] = 5.0
    one.ask(1, 2)
    assert one.log.index("send 2") < one.log.index("send 1")


class Answers:
    """Brokers with fixed answers."""

    timeout_s = 1.0

    def __init__(self, answers: dict[int, Any]) -> None:
        self.answers = answers

    def ask(self, requests: Mapping[int, Callable[[Any], Any]], _: float) -> dict[int, Any]:
        return {node: self.answers[node] for node in requests}


def a_request(_: Sequence[str]) -> Callable[[Any], Any]:
    return lambda _: None


def decoded(answer: dict[str, str], _: int) -> dict[str, str]:
    return answer


def test_each_item_has_an_answer_or_an_error_and_no_other_item_has() -> None:
    brokers = Answers({1: {"a": "A", "unasked": "?"}, 2: BrokerError("broker 2 is down")})
    found = ask_for_each(brokers, {1: ["a", "b"], 2: ["c", "d"]}, a_request, decoded)
    assert {item: str(one) for item, one in found.items()} == {
        "a": "A",
        "b": "missing from the answer",
        "c": "broker 2 is down",
        "d": "broker 2 is down",
    }
    assert {item for item, one in found.items() if isinstance(one, BrokerError)} == {"b", "c", "d"}
