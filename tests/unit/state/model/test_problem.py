"""A problem is compared by its code, however its text is composed."""

from __future__ import annotations

import pytest
from kafka.errors import for_code

from support.problems import a_problem
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import ErrorCode, Problem
from txnwatch.streaming.client.connection import problem_of

DENIED = [code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED")]


@pytest.mark.parametrize("code", ErrorCode)
def test_a_code_has_the_number_that_kafka_gives_its_name(code: ErrorCode) -> None:
    found = problem_of(code)
    assert (str(found), found.code) == (code.name, code) if found is not None else code is ErrorCode.NONE
    assert found is None or for_code(code).errno == code


@pytest.mark.parametrize("code", DENIED)
def test_a_missing_right_stays_one_whatever_its_text_is(code: ErrorCode) -> None:
    refused = a_problem(code.name)
    assert refused.is_denied
    assert refused.of("orders-0").is_denied
    assert refused.with_hint("grant it").of("orders-0") == Problem(f"orders-0: {code.name}: grant it", code)
    assert refused.with_right("READ on the topic") == refused.with_hint("the right READ on the topic is missing")


def test_another_problem_names_no_right() -> None:
    moved = a_problem("NOT_COORDINATOR")
    assert moved.with_right("READ on the topic") == moved


def test_a_text_with_the_name_of_an_error_is_no_refusal() -> None:
    assert not Problem("TOPIC_AUTHORIZATION_FAILED").is_denied
    assert not a_problem("UNKNOWN_TOPIC_OR_PARTITION").is_denied
    assert not Problem.from_error(BrokerError("CLUSTER_AUTHORIZATION_FAILED")).is_denied


def test_a_code_that_no_caller_compares_is_kept() -> None:
    assert problem_of(16) == Problem("NOT_COORDINATOR", 16)
