"""What a check cannot know is said once, with the reason, and is no finding."""

from __future__ import annotations

import pytest

from support.audited import broker, facts, found, missing, topic
from txnwatch.state.audit.audit_facts import AuditFacts
from txnwatch.state.model.values import Problem

HIDDEN = Problem("CLUSTER_AUTHORIZATION_FAILED", 31)
UNCLEAN = "unclean.leader.election.enable"


@pytest.mark.parametrize(
    ("of", "what"),
    [
        (facts(brokers=[broker("3.9", versions={}), *[broker("3.9")] * 3]), "release of broker 1"),
        (facts(brokers=[broker("3.9", problem=HIDDEN), *[broker("3.9")] * 3]), "broker 1"),
        (facts(brokers=[broker("3.9", settings_problem=HIDDEN), *[broker("3.9")] * 3]), "settings of broker 1"),
        (facts(topic(settings_problem=HIDDEN), brokers=[broker("3.9")] * 3), "settings of topics payments"),
        (facts(topic(settings={UNCLEAN: ("true", 4)}), brokers=[broker("3.9")] * 3), f"{UNCLEAN} of payments"),
        (facts(brokers=[broker(level=None)] * 3), "level of transaction.version"),
    ],
)
def test_what_cannot_be_certain_says_what_it_would_need(of: AuditFacts, what: str) -> None:
    assert missing(of) == [what]
    assert found(of) == []


def test_of_brokers_that_do_not_answer_nothing_more_is_said() -> None:
    assert missing(facts(brokers=[broker(problem=HIDDEN)])) == ["broker 2", "broker 3", "broker 1"]
