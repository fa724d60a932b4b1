"""Planted bugs of the outcome: each removes one part of the rule that excludes owners in lost records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from msgspec.structs import replace

from simulation.view import View
from txnwatch.state.detection import proof, span, view
from txnwatch.state.evidence import outcome, proven_hang
from txnwatch.state.evidence.outcome import Doubt
from txnwatch.state.model.incident import OutcomeDoubt
from txnwatch.state.model.ports import ActiveProducer, SpanData
from txnwatch.state.model.transaction import CoordinatorView, LossProof, Witness
from txnwatch.streaming.log import transaction_fold
from txnwatch.streaming.log.range_reading import RangeReading

Planted = Callable[[], AbstractContextManager[None]]


@contextmanager
def lineage_across_elections() -> Iterator[None]:
    """A record inherits from the one before although another leader has appended that."""
    follow = view.follow

    def across(prior: CoordinatorView | None, view: CoordinatorView, *also: Any, **how: Any) -> CoordinatorView:
        same = replace(prior, coordinator_epoch=view.coordinator_epoch) if prior is not None else None
        return follow(same, view, *also, **how)

    with ExitStack() as stack:
        for module in (view, view, transaction_fold):
            stack.enter_context(mock.patch.object(module, "follow", across))
        yield


@contextmanager
def an_earlier_leader_counts() -> Iterator[None]:
    """A record of an earlier leader than the present one counts."""
    with _witness_seen_as(lambda witness: replace(witness, log_epoch=witness.view.coordinator_epoch)):
        yield


@contextmanager
def an_epoch_is_a_reign() -> Iterator[None]:
    """Two listings under one leader epoch are of one reign, also if the connection was interrupted between them."""
    with mock.patch.object(View, "connection_to_keep", return_value=""):
        yield


@contextmanager
def one_read_counts() -> Iterator[None]:
    """An outcome counts at once, and not only once a later barrier still shows the reign in which it was read."""
    with mock.patch.object(proven_hang, "known_outcome", outcome.read_outcome):
        yield


@contextmanager
def a_record_of_an_earlier_connection_counts() -> Iterator[None]:
    """A record counts although the connection was interrupted since, if the data is younger."""

    def seen(witness: Witness) -> Witness:
        is_old = witness.proof is LossProof.NOTHING and witness.is_begun_under_it
        return replace(witness, proof=LossProof.CONNECTION) if is_old else witness

    with _witness_seen_as(seen):
        yield


@contextmanager
def data_of_an_earlier_connection_counts() -> Iterator[None]:
    """Data counts although the connection was interrupted since, if the record is younger."""
    loss_proof = proof.loss_proof

    def begun(*about: Any, is_begun_under_it: bool) -> LossProof:
        del is_begun_under_it
        return loss_proof(*about, is_begun_under_it=True)

    with mock.patch.object(proof, "loss_proof", begun):
        yield


@contextmanager
def an_epoch_proves_an_age() -> Iterator[None]:
    """Data with the leader epoch of the listing counts as younger than the listing, whoever leads now."""
    with mock.patch.object(RangeReading, "youngest_epoch", property(lambda read: read.wanted.listed_epoch)):
        yield


@contextmanager
def an_offset_proves_an_age() -> Iterator[None]:
    """Data above a listed end counts as younger than the listing, whatever leader has appended it."""
    with mock.patch.object(span, "barrier_before", lambda _, read_since: read_since):
        yield


@contextmanager
def a_sequence_identifies_data() -> Iterator[None]:
    """The last timestamp does not belong to what identifies the data; a group coordinator's sequence never moves."""
    without = property(lambda row: SpanData(row.txn_start_offset, row.producer_epoch, row.last_sequence, None))
    with (
        mock.patch.object(ActiveProducer, "data", without),
        mock.patch.object(proven_hang, "has_grown", return_value=False),
        mock.patch.object(proven_hang, "has_begun", return_value=False),
    ):
        yield


@contextmanager
def _witness_seen_as(changed: Callable[[Witness], Witness]) -> Iterator[None]:
    of_election = outcome.of_election
    with mock.patch.object(outcome, "of_election", lambda witness, history: of_election(changed(witness), history)):
        yield


@contextmanager
def a_log_that_was_read_again_counts_no_more() -> Iterator[None]:
    """After one cut of a log partition, all its later outcomes are unknown."""
    without_owner = outcome.without_owner_in_view

    def read_once(view: CoordinatorView) -> Doubt | None:
        return Doubt(OutcomeDoubt.EPOCH_SHARED) if view.reading > 0 else without_owner(view)

    with mock.patch.object(outcome, "without_owner_in_view", read_once):
        yield


# With a seed of a life that finds each; test_lost_records.py finds the others.
PLANTED: tuple[tuple[Planted, int], ...] = (
    (an_earlier_leader_counts, 51),
    (lineage_across_elections, 30),
    (a_log_that_was_read_again_counts_no_more, 2),
)
