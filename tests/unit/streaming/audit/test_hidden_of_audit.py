"""A topic of a transaction that this user may not describe is not checked; a deleted one is nothing."""

from __future__ import annotations

from collections.abc import Iterable

from support.problems import a_problem
from txnwatch.streaming.audit.gathering import hidden_from_audit
from txnwatch.streaming.client.metadata import TopicInfo

REFUSED = a_problem("TOPIC_AUTHORIZATION_FAILED").with_right("DESCRIBE on the topic")
UNKNOWN = a_problem("UNKNOWN_TOPIC_OR_PARTITION")


class _Cluster:
    metadata = None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def named(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        self.asked += topics
        return {name: TopicInfo(name, "", {}, UNKNOWN if name == "gone" else REFUSED) for name in self.asked}


def test_hidden_topics_of_transactions_are_not_checked() -> None:
    cluster = _Cluster()
    (one,) = hidden_from_audit(cluster, {"gone", "payments", "ledger"})  # type: ignore[arg-type]
    assert one.what == "topics ledger, payments"
    assert one.why == f"the coordinators' log names them: {REFUSED}"


def test_nothing_is_asked_if_each_topic_is_shown() -> None:
    cluster = _Cluster()
    assert hidden_from_audit(cluster, set()) == ()  # type: ignore[arg-type]
    assert cluster.asked == []
