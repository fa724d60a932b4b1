"""What a fence does next, and what it never fences."""

from __future__ import annotations

import pytest

from txnwatch.state.abort.fencing import (
    FenceStep,
    consequence,
    expected_in,
    identity_of,
    is_as_named,
    is_fenced,
    may_begin_again,
    next_step,
    timeout_means,
    timeouts_to_name,
    why_not,
)
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    ProducerIdentity,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS

BEFORE = ProducerIdentity(7, 3)
COMPLETING = (S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE)


def described(
    state: S,
    epoch: int | None = 3,
    producer_id: int = 7,
    partitions: int = 0,
    start_ms: int | None = None,
    timeout_ms: int = 60_000,
) -> DescribedTransaction:
    held = frozenset(TopicPartition("orders", number) for number in range(partitions))
    return DescribedTransaction("app", 1, state, producer_id, epoch, timeout_ms, start_ms, held)


AWAY, UNKNOWN = NotDescribed("app", Problem("its coordinator is away")), UnknownTransactionalId("app", 1)
# What the id looks like now, and the step before InitProducerId is sent and after it.
STEPS: dict[str, tuple[TransactionDescription, FenceStep, FenceStep]] = {
    "its coordinator does not answer": (AWAY, FenceStep.WAIT, FenceStep.WAIT),
    "it has expired": (UNKNOWN, FenceStep.REFUSE, FenceStep.REFUSE),
    "nothing is open": (described(S.EMPTY), FenceStep.SEND, FenceStep.WAIT),
    "the last transaction has ended": (described(S.COMPLETE_ABORT), FenceStep.SEND, FenceStep.WAIT),
    "a transaction is open": (described(S.ONGOING), FenceStep.SEND, FenceStep.WAIT),
    "it has a higher epoch": (described(S.EMPTY, 4), FenceStep.REFUSE, FenceStep.DONE),
    "it has a higher epoch, and is at work": (described(S.ONGOING, 4), FenceStep.REFUSE, FenceStep.DONE),
    "it has another producer id": (described(S.EMPTY, 0, 8), FenceStep.REFUSE, FenceStep.DONE),
    "it has no epoch": (described(S.EMPTY, None), FenceStep.REFUSE, FenceStep.DONE),
    **{f"{state}": (described(state), FenceStep.WAIT, FenceStep.WAIT) for state in COMPLETING},
    **{f"{state}, fenced": (described(state, 4), FenceStep.WAIT, FenceStep.WAIT) for state in COMPLETING},
}


@pytest.mark.parametrize(("now", "first", "later"), STEPS.values(), ids=STEPS.keys())
def test_the_step_follows_from_what_the_id_has_now(
    now: TransactionDescription, first: FenceStep, later: FenceStep
) -> None:
    before = described(S.ONGOING) if now == described(S.ONGOING) else described(S.EMPTY)
    assert next_step(before, now, is_sent=False).step is first
    assert next_step(before, now, is_sent=True).step is later


@pytest.mark.parametrize("before", [described(S.EMPTY), described(S.COMPLETE_COMMIT), described(S.ONGOING, start_ms=1)])
def test_a_transaction_that_has_begun_since_it_was_shown_is_not_aborted(before: DescribedTransaction) -> None:
    """A client with transaction.version 0 or 1 goes on under the same epoch."""
    found = next_step(before, described(S.ONGOING, start_ms=2), is_sent=False)
    assert (found.step, "has begun since it was shown" in found.why) == (FenceStep.REFUSE, True)


def test_a_lower_epoch_than_the_named_one_is_another_client() -> None:
    assert [is_as_named(described(S.EMPTY), epoch) for epoch in (None, 3, 4)] == [True, True, False]


def test_only_the_epoch_that_was_seen_is_named() -> None:
    assert expected_in(described(S.COMPLETE_COMMIT)) == BEFORE
    assert expected_in(described(S.ONGOING)) is None, "the coordinator compares none, and would refuse the retry"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (AWAY, "its coordinator is away"),
        (UNKNOWN, "there is nothing to fence"),
        (described(S.EMPTY, None), "has no epoch yet"),
    ],
)
def test_what_cannot_be_fenced_has_a_reason(found: TransactionDescription, text: str) -> None:
    assert text in (why_not(found) or "")


def test_an_id_with_an_epoch_can_be_fenced() -> None:
    assert why_not(described(S.ONGOING)) is None
    assert identity_of(described(S.ONGOING)) == BEFORE


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (described(S.ONGOING, partitions=1), "its open transaction is aborted, on 1 partition: "),
        (described(S.ONGOING, partitions=2), "its open transaction is aborted, on 2 partitions: "),
        (described(S.PREPARE_COMMIT), "its transaction is in PrepareCommit: its end is decided"),
        (described(S.COMPLETE_COMMIT), "it has no open transaction"),
    ],
)
def test_the_operator_reads_what_it_ends(found: DescribedTransaction, text: str) -> None:
    assert text in consequence(found)
    assert "the application that has epoch 3 is fenced" in consequence(found)


# By the producer id and epoch of the id: whether data of producer id 7, epoch 3 can get another transaction.
AGAIN = {(7, 2): True, (7, 3): True, (7, 4): False, (7, None): True, (8, 0): False, (8, 3): False}


@pytest.mark.parametrize(("has", "again"), AGAIN.items())
def test_an_epoch_is_safe_once_the_id_has_a_higher_one_or_another_producer_id(
    has: tuple[int, int | None], *, again: bool
) -> None:
    producer_id, epoch = has
    assert may_begin_again(described(S.EMPTY, epoch, producer_id), BEFORE) is again
    assert is_fenced(described(S.EMPTY, epoch, producer_id), 7, 3) is not again
    assert not is_fenced(described(S.EMPTY, epoch, producer_id), None, None)


NOT_SHOWN = Problem("CLUSTER_AUTHORIZATION_FAILED")
# The timeout of the id, the maximum of its coordinator, the timeouts to send, and whether there is something to say.
TIMEOUTS: dict[str, tuple[int, int | Problem, tuple[int, ...], bool]] = {
    "below the maximum": (60_000, 120_000, (60_000,), False),
    "the maximum": (120_000, 120_000, (120_000,), False),
    "above it": (600_000, 120_000, (120_000,), True),
    "two-phase": (TWO_PHASE_TIMEOUT_MS, 120_000, (120_000,), True),
    "not shown, of a default client": (60_000, NOT_SHOWN, (60_000,), False),
    "not shown, below its default": (600_000, NOT_SHOWN, (600_000, 60_000), False),
    "not shown, above its default": (3_600_000, NOT_SHOWN, (3_600_000, 60_000), True),
    "not shown, two-phase": (TWO_PHASE_TIMEOUT_MS, NOT_SHOWN, (TWO_PHASE_TIMEOUT_MS, 60_000), True),
}


@pytest.mark.parametrize("state", [S.ONGOING, S.EMPTY, S.COMPLETE_ABORT])
@pytest.mark.parametrize(("own", "longest", "sent", "is_said"), TIMEOUTS.values(), ids=TIMEOUTS.keys())
def test_a_timeout_that_the_coordinator_refuses_is_not_all_that_is_sent(
    own: int, longest: int | Problem, sent: tuple[int, ...], *, is_said: bool, state: S
) -> None:
    found = described(state, timeout_ms=own)
    assert timeouts_to_name(found, longest) == sent
    text = timeout_means(found, longest)
    assert (text is not None) is is_said
    if text is not None:
        assert f"{sent[-1]} ms" in text
        assert ("The id keeps its own" in text) is (state is S.ONGOING)
        assert ("lower its transaction.timeout.ms" in text) is (own != TWO_PHASE_TIMEOUT_MS)
