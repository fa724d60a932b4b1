"""Applies one fact to a producer (`apply`), and has what records of `__transaction_state` do to its coordinator's view.

span.py has what data and markers do. Pure: no I/O, no clock.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.span import Step, after_notice, after_ranges, held_between_barriers
from txnwatch.state.model.facts import (
    FirstDecision,
    NoticeKind,
    PartitionNotice,
    ProducerSeen,
    TransactionalIdGone,
    TransactionEnd,
    TransactionSeen,
)
from txnwatch.state.model.findings import Finding, TransactionMoved
from txnwatch.state.model.incident import EndedBy
from txnwatch.state.model.transaction import (
    COMPLETED_AS,
    COVER,
    ITS_OWN,
    UNKNOWN_PREVIOUS,
    CoordinatorView,
    EpochUse,
    ProducerState,
    TransactionState,
)
from txnwatch.state.model.values import (
    NO_BARRIER,
    TRANSACTION_STATE_TOPIC,
    BarrierNumber,
    CoordinatorEpoch,
    ProducerEpoch,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import RULE_OF, Family, Verdict, family_of

# What a coordinator record inherits from the one before it: its participants, and who used its epoch.
#
# A hanging transaction may be aborted only if no committed transaction can own the data, and data has nothing but a
# producer id and an epoch. So the state keeps two values for the transaction in view: the epoch of its data
# (`data_epoch`, from its Ongoing record, because the end may raise it) and whether another transaction may have used
# that epoch (`epoch_use`). Up to transaction.version 1 an epoch is used from one InitProducerId to the next, by any
# number of transactions. From version 2 on each end raises it. A client can change the version without a new
# InitProducerId. Only consecutive records show which case it is, and two adjacent records need not be consecutive.
# Compaction removes records between them, including those that ended a transaction: so no offset between them may be
# missing. A leader can lose records that nobody has read: so both must have been appended in one reign.
# Everything else is SHARED, which proves nothing.
#
# A range may begin within a transaction, and have the next one as well. The fold of the range cannot judge the epoch of
# the next one (NEXT): the state does, which has the Ongoing record of the first.

_OPEN = frozenset({EpochUse.UNJUDGED, EpochUse.NEXT})  # the views of earlier ranges decide


def begun(view: CoordinatorView) -> CoordinatorView:
    """Prepares the first record of a range; what it inherits is not known yet."""
    match view.state:
        case TransactionState.EMPTY:
            return replace(view, epoch_use=EpochUse.FIRST, first_unused=view.producer_epoch)
        case TransactionState.ONGOING:
            return replace(view, data_epoch=view.producer_epoch)
        case _:
            return view


def follow(
    prior: CoordinatorView | None,
    view: CoordinatorView,
    decided: FirstDecision | None = None,
    *,
    is_consecutive: bool = True,
) -> CoordinatorView:
    """The view after what was known before it; values that its own range has already decided do not change.

    Args:
        prior: the view before: in the same range, or of the ranges before.
        view: what the newer record shows.
        decided: what the range decides first about the id.
        is_consecutive: False if something between the two was not read or is no longer there.
    """
    same = prior if prior is not None and is_consecutive and is_same_transaction(prior, view) else None
    participants = view.participants
    if same is not None and view.state.is_complete and not participants:
        # Complete* does not contain its partitions; they are needed for the reason of a hang, and for its outcome.
        participants = same.participants
    if prior is not None and appended_under(prior) != appended_under(view):
        is_consecutive, same = False, None  # the election between them may have removed records that were never read
    if view.state is TransactionState.EMPTY:
        return _after_init(prior, view, is_consecutive=is_consecutive)
    is_judged = view.epoch_use not in _OPEN and not _was_out_before(prior, view, same)
    if same is not None and not is_judged:
        use = at_its_end(view, same.data_epoch, same.epoch_use)
        return replace(view, participants=participants, data_epoch=same.data_epoch, epoch_use=use)
    if participants is not view.participants:
        view = replace(view, participants=participants)
    if is_judged:
        return view
    before = _after_end(prior, decided) if prior is not None and is_consecutive else None
    if before is not None and _began_before_its_range(before) and _has_reached(before, view.data_epoch):
        return replace(view, epoch_use=EpochUse.NEXT)
    use = use_of(before, view.data_epoch) if view.data_epoch is not None else EpochUse.SHARED
    return replace(view, epoch_use=at_its_end(view, view.data_epoch, use))


def _began_before_its_range(ended: CoordinatorView) -> bool:
    """Whether a range has the end of a transaction and not its beginning: only the state can judge what follows it."""
    return ended.state.is_complete and ended.epoch_use is EpochUse.UNJUDGED and ended.data_epoch is None


def _after_end(prior: CoordinatorView, decided: FirstDecision | None) -> CoordinatorView:
    """The view before a range once its transaction has ended, if the first record of the range ends it."""
    if decided is None or not decided.is_first or decided.producer_epoch is None or not decided.is_final:
        return prior
    if not prior.is_live or decided.start_ms != prior.start_ms:
        return prior
    state = COMPLETED_AS.get(decided.state, decided.state)
    return replace(prior, state=state, producer_epoch=decided.producer_epoch)


def appended_under(view: CoordinatorView) -> tuple[int, CoordinatorEpoch | None, BarrierNumber | None]:
    """Under whom a record was appended: the log partition, the leader epoch, and the reign if that is not enough."""
    return view.log_partition, view.coordinator_epoch, view.reign


def used_before(view: CoordinatorView) -> CoordinatorView:
    """The view, if data of an epoch was there before the record that gave it: who else used the epoch is not known.

    A client gets an epoch after the record of it is committed. So an earlier record of the epoch is missing, with what
    followed it: an unclean election has removed it, or it was not read.
    """
    return replace(
        view,
        epoch_use=EpochUse.SHARED,
        first_unused=None,
        data_epoch=view.data_epoch if view.state is TransactionState.EMPTY else view.producer_epoch,
        previous_outcome=UNKNOWN_PREVIOUS if view.previous_outcome is not None else None,
        previous_end_epoch=None,
    )


def is_same_transaction(prior: CoordinatorView, view: CoordinatorView) -> bool:
    """Whether a record continues the transaction of the one before; Complete* keeps the start of what it ended."""
    if prior.start_ms != view.start_ms or view.start_ms is None or view.epoch_use is EpochUse.NEXT:
        return False
    if view.state is TransactionState.ONGOING:
        return prior.state is TransactionState.ONGOING and prior.producer_epoch == view.producer_epoch
    if view.data_epoch is not None and prior.data_epoch not in {None, view.data_epoch}:
        return False
    if prior.state.is_complete and view.data_epoch is not None and view.epoch_use is not EpochUse.SHARED:
        return False  # its own range has its Ongoing record: another transaction, even if the start is equal
    return prior.state.is_live or (prior.state is view.state and prior.producer_epoch == view.producer_epoch)


def is_unused(view: CoordinatorView, epoch: ProducerEpoch) -> bool:
    """Whether no transaction can have written data of this epoch: it was handed out, and none has begun under it."""
    lowest = _lowest_unused(view)
    return lowest is not None and view.superseded_by is None and lowest <= epoch <= view.producer_epoch


def is_begun_anew(view: CoordinatorView, epoch: ProducerEpoch) -> bool:
    """Whether an InitProducerId has handed out the epoch after the last transaction that is known.

    A later InitProducerId, for example a fence, does not change this. The end of a transaction can raise the epoch,
    too. If the epoch of that end is not known, only the last epoch is certainly that of an InitProducerId.
    """
    if view.state is not TransactionState.EMPTY:
        return False
    if view.data_epoch is None and view.previous_outcome is None:
        return True
    last_end = view.previous_end_epoch
    if last_end is None:
        return epoch == view.producer_epoch and epoch != view.data_epoch
    return epoch > last_end


def _lowest_unused(view: CoordinatorView) -> ProducerEpoch | None:
    """The epoch from which on no transaction has begun; it may be above that of the view. None if it is not known."""
    if view.state is TransactionState.EMPTY:
        return view.first_unused
    if view.state.is_complete and view.data_epoch is not None:
        return ProducerEpoch(view.data_epoch + 1)
    return None


def _was_out_before(prior: CoordinatorView | None, view: CoordinatorView, same: CoordinatorView | None) -> bool:
    """Whether a range begins with an InitProducerId whose epoch was handed out before, so it is not its first use."""
    if prior is None or view.epoch_use is not EpochUse.FIRST:
        return False
    return _has_reached(prior, view.data_epoch) if same is None else same.epoch_use not in ITS_OWN


def _has_reached(prior: CoordinatorView, data_epoch: ProducerEpoch | None) -> bool:
    """Whether the id had this epoch, or a later one, before."""
    return prior.superseded_by is None and (data_epoch is None or prior.producer_epoch >= data_epoch)


def _after_init(prior: CoordinatorView | None, view: CoordinatorView, *, is_consecutive: bool) -> CoordinatorView:
    """The view after an InitProducerId; a repeated one returns the same epoch again, even after a transaction."""
    if prior is None:
        return view if is_consecutive else replace(view, previous_outcome=UNKNOWN_PREVIOUS, previous_end_epoch=None)
    is_first_of_range = view.previous_outcome is None
    first_unused = _first_unused(prior, view, is_extended=is_consecutive and is_first_of_range)
    view = replace(
        view,
        epoch_use=_use_after_init(prior, view) if first_unused is not None else EpochUse.SHARED,
        first_unused=first_unused,
        participants=view.participants or prior.participants,
        data_epoch=view.data_epoch if view.data_epoch is not None else prior.data_epoch,
    )
    if not is_first_of_range:
        was_out = _has_reached(prior, view.data_epoch)  # before its range began
        return replace(view, previous_outcome=UNKNOWN_PREVIOUS, previous_end_epoch=None) if was_out else view
    outcome, end_epoch = _previous_end(prior, view) if is_consecutive else (UNKNOWN_PREVIOUS, None)
    return replace(view, previous_outcome=outcome, previous_end_epoch=end_epoch)


def _first_unused(prior: CoordinatorView, view: CoordinatorView, *, is_extended: bool) -> ProducerEpoch | None:
    """The lowest unused epoch after an InitProducerId; None if transactions may have used the epoch of the record.

    Epochs that the record before it left unused will never be used: `is_extended` is True if no record between the two
    can be missing.
    """
    if view.first_unused is None or prior.superseded_by is not None:
        return view.first_unused
    lowest = _lowest_unused(prior)
    if is_extended and lowest is not None and lowest <= prior.producer_epoch:
        return lowest
    first = max(view.first_unused, ProducerEpoch(prior.producer_epoch + 1))
    return first if first <= view.producer_epoch else None


def _use_after_init(prior: CoordinatorView, view: CoordinatorView) -> EpochUse:
    """Who uses the unused epoch of an InitProducerId; a repeated one can return the epoch that an end has raised."""
    is_repeated = prior.producer_epoch == view.producer_epoch and prior.superseded_by is None
    return use_of(prior, view.producer_epoch) if is_repeated and view.epoch_use is EpochUse.FIRST else view.epoch_use


def _previous_end(prior: CoordinatorView, view: CoordinatorView) -> tuple[str | None, ProducerEpoch | None]:
    """How the last transaction before an InitProducerId ended, if no other has used its epoch, or ever will."""
    if prior.state is TransactionState.EMPTY:
        return prior.previous_outcome, prior.previous_end_epoch
    is_raised = prior.data_epoch is None or view.producer_epoch > prior.data_epoch
    is_its_own = prior.state.is_complete and prior.epoch_use in ITS_OWN and is_raised
    if not is_its_own or prior.state.outcome is None:
        return UNKNOWN_PREVIOUS, None
    return prior.state.outcome, prior.producer_epoch


def use_of(prior: CoordinatorView | None, epoch: ProducerEpoch) -> EpochUse:
    """Who may have used the epoch of a transaction that begins after the view `prior`."""
    if prior is None or not is_unused(prior, epoch):
        return EpochUse.SHARED
    return prior.epoch_use if prior.state is TransactionState.EMPTY else EpochUse.RAISED


def at_its_end(view: CoordinatorView, data_epoch: ProducerEpoch | None, use: EpochUse) -> EpochUse:
    """A RAISED epoch becomes SHARED if the end does not raise it: two transactions then have markers of this epoch."""
    is_left = view.state is not TransactionState.ONGOING and view.producer_epoch == data_epoch
    return EpochUse.SHARED if is_left and use is EpochUse.RAISED else use


# How a transaction that was live before a range has ended in it, and who ended it, by the coordinators' log alone.
#
# A range may show many transactions of an id, and its last record is of the last one. Only the first transaction that
# it decides (`FirstDecision`) can be one that began before. Law: the decision is about that transaction if both have
# the same start, also if records between the two are missing. Each transaction has a start of its own: also one that is
# aborted while it is empty (transaction.version 2) has the time of its Prepare* record.
#
# Law: a transaction has ended once its decision is final (decisions/0050). If the append of Prepare* fails, only the
# coordinator's memory goes back to Ongoing: the record stays in the log, and another decision may follow it.
#
# Only a client commits. A client of version 0 or 1 aborts under the same epoch, and from version 2 on it raises the
# epoch by one. A coordinator that aborts by itself, at the timeout or for a new InitProducerId, raises it in every
# version. So a raised epoch proves the coordinator only if the client's version does not raise it.

RAISES_EPOCH = 2  # the first transaction.version in which the client's EndTxn raises the epoch
_COMMIT = "commit"


def decision_of(view: CoordinatorView, producer_epoch: ProducerEpoch | None, *, is_first: bool) -> FirstDecision | None:
    """The first decision about a transaction, by the record that has it; None if the record decides nothing."""
    if view.state.outcome is None:
        return None
    is_final = view.state.is_complete
    return FirstDecision(
        view.state, view.start_ms, producer_epoch, view.log_offset, view.record_timestamp_ms, is_first, is_final
    )


def decision_after(
    decided: FirstDecision, view: CoordinatorView, producer_epoch: ProducerEpoch | None, *, is_consecutive: bool
) -> FirstDecision | None:
    """The decision after another record of the id; None if the record takes it back.

    Args:
        decided: the decision before.
        view: what the other record shows.
        producer_epoch: that of the other record; None if it gives the id another producer id.
        is_consecutive: whether nothing is missing since the decision.
    """
    if decided.is_final:
        return decided
    if view.start_ms != decided.start_ms:
        return decided._replace(is_final=True) if is_consecutive else decided
    if view.state is TransactionState.ONGOING:
        return None
    is_same_epoch = is_consecutive or producer_epoch == decided.producer_epoch
    if view.state is COMPLETED_AS.get(decided.state) and is_same_epoch:
        return decided._replace(is_final=True)
    return decision_of(view, producer_epoch, is_first=decided.is_first)


def is_decided(prior: CoordinatorView, decided: FirstDecision | None) -> bool:
    """Whether a decision is about the live transaction in a view; it may still be taken back.

    Args:
        prior: the view before the range.
        decided: what the range decides first about its transactional id.
    """
    return decided is not None and decided.start_ms == prior.start_ms


def end_of(
    prior: CoordinatorView, decided: FirstDecision | None, begun: CoordinatorView | None = None
) -> TransactionEnd | None:
    """The end of the live transaction in a view, None if what was read does not prove it; arguments of `is_decided`.

    `begun` is the Ongoing record of the transaction, if the view is later than that.
    """
    if decided is None or not decided.is_final or not is_decided(prior, decided):
        return None
    if COMPLETED_AS.get(prior.state) is decided.state:  # the range has Complete*, and the view has its Prepare*
        decided = decision_of(prior, prior.producer_epoch, is_first=True) or decided
    open_for_ms = elapsed(prior.start_ms, decided.record_timestamp_ms) if prior.start_ms is not None else None
    return TransactionEnd(decided.state, _ended_by(begun or prior, decided), decided.log_offset, open_for_ms)


def _ended_by(record: CoordinatorView, decided: FirstDecision) -> EndedBy:
    """Who made a decision; `record` is the Ongoing record of the transaction, or else its Prepare* record."""
    if decided.state.outcome == _COMMIT:
        return EndedBy.CLIENT
    began_with = record.producer_epoch if record.state is TransactionState.ONGOING else _began_with(record)
    ended_with = decided.producer_epoch
    if began_with is None or ended_with is None:
        return EndedBy.UNKNOWN
    if ended_with == began_with:
        return EndedBy.CLIENT
    may_be_client = record.client_transaction_version >= RAISES_EPOCH and ended_with == began_with + 1
    return EndedBy.UNKNOWN if may_be_client else EndedBy.COORDINATOR


def _began_with(prepared: CoordinatorView) -> ProducerEpoch | None:
    """The epoch of the data of a transaction in Prepare*; None if it is not certain (`used_before`)."""
    is_certain = prepared.data_epoch != prepared.producer_epoch or prepared.epoch_use in ITS_OWN
    return prepared.data_epoch if is_certain else None


# One producer id that two transactional ids use: a cluster that was restored from a backup may give it out again.
#
# Data has a producer id and no transactional id, so it cannot be known whose it is. The view of a producer id is that
# of one transactional id, with the name of another one (`also_used_by`). Law:
#
#   * A record of another id never replaces a live transaction, whose marker will come.
#   * Nothing is inherited from one id to the other: who used an epoch is not known.
#   * The name stays. The fresh read describes both ids, and with two ids it confirms no hang
#     (evidence/confirmation.py).
#   * No stray write is proven: the other id may have owned the data.


def is_of_another_id(prior: CoordinatorView | None, view: CoordinatorView) -> bool:
    """Whether a record about a producer id belongs to another transactional id than the known view."""
    return prior is not None and prior.transactional_id != view.transactional_id


def is_shared(view: CoordinatorView | None) -> bool:
    """Whether two transactional ids have had the producer id of a view."""
    return view is not None and view.also_used_by is not None


def view_of_two(prior: CoordinatorView, view: CoordinatorView, *, is_newer: bool) -> CoordinatorView:
    """The view of a producer id after a record of another transactional id than the known one."""
    is_kept = (prior.is_live and not prior.is_unseen) or not (view.is_live or is_newer)
    if is_kept:
        return replace(prior, also_used_by=view.transactional_id)
    return replace(follow(None, view, is_consecutive=False), also_used_by=prior.transactional_id)


def after_records(
    producer: ProducerState,
    seen: TransactionSeen,
    view: CoordinatorView,
    barrier_number: BarrierNumber,
    *,
    is_consecutive: bool,
) -> Step:
    """The producer after what a range has about its id; `view` is that of the fact, in its reading of the log."""
    held = held_between_barriers(producer, seen.held)
    return after_record(held, view, barrier_number, seen.decided, is_consecutive=is_consecutive)


def after_record(
    producer: ProducerState,
    view: CoordinatorView,
    barrier_number: BarrierNumber,
    decided: FirstDecision | None = None,
    *,
    is_consecutive: bool,
) -> Step:
    """The producer after a record about its transactional id that was read in the batch of barrier `barrier_number`.

    `decided` is what the range decides first about the id.
    """
    prior = producer.view
    if prior is not None and is_of_another_id(prior, view):
        return _moved(producer, view_of_two(prior, view, is_newer=is_newer(prior, view)))
    if prior is not None and not is_newer(prior, view):
        return Step(producer)
    followed = follow(prior, view, decided, is_consecutive=is_consecutive)
    if prior is not None and prior.also_used_by is not None:
        followed = replace(followed, also_used_by=prior.also_used_by)
    if _has_older_data(producer, view, barrier_number):
        followed = used_before(followed)
    followed = _first_seen(prior, followed)
    if prior is None:
        return _moved(producer, followed)
    end = end_of(prior, decided, producer.begun)
    return _moved(producer, followed, end, is_decided=is_decided(prior, decided))


def _has_older_data(producer: ProducerState, view: CoordinatorView, barrier_number: BarrierNumber) -> bool:
    """Whether data of an epoch that the record gives was seen in an earlier batch.

    Each batch lists the coordinators' log after the data. So this record was not in the log when the data was.
    """
    if not producer.spans:
        return False
    known_epoch = producer.view.producer_epoch if producer.view is not None else -1
    lowest = view.data_epoch if view.data_epoch is not None else view.producer_epoch
    return any(
        span.eligible_from < barrier_number and span.epoch > known_epoch and span.epoch >= lowest
        for span in producer.spans.values()
    )


def _first_seen(prior: CoordinatorView | None, view: CoordinatorView) -> CoordinatorView:
    """The view, with the time of the first record that showed its state; later records of the state keep that time.

    Prepare* is one record, which may be read again. If its append has failed, another one of the same transaction may
    follow, so the start alone does not distinguish one Prepare* from the next.
    """
    is_same = prior is not None and prior.is_live and (prior.state, prior.start_ms) == (view.state, view.start_ms)
    if prior is None or not is_same or prior.producer_epoch != view.producer_epoch:
        return view
    if view.state.is_prepare and prior.record_timestamp_ms != view.record_timestamp_ms:
        return view
    listed = [since_ms for since_ms in (prior.since_ms, view.since_ms) if since_ms is not None]
    return replace(view, since_ms=min(listed, default=None))


def is_newer(prior: CoordinatorView, view: CoordinatorView) -> bool:
    """Whether a record is newer than the known one: it is later in the same log partition, or in another partition."""
    if prior.log_partition != view.log_partition:
        return True
    if prior.reading != view.reading:  # offsets can be compared only within one reading of a log partition
        return view.reading > prior.reading
    return prior.is_unseen or view.log_offset > prior.log_offset


def _after_tombstone(producer: ProducerState, fact: TransactionalIdGone) -> Step:
    """The producer after a tombstone: the coordinator has forgotten the id.

    An id has records on two partitions of the log if partitions were added to it (KAFKA-7771). The old ones expire
    where they are, and the coordinator that the id has now does not read them.
    """
    view = producer.view
    if view is None or (view.transactional_id, view.log_partition) != (fact.transactional_id, fact.log_partition):
        return Step(producer)
    if fact.log_offset <= view.log_offset and not view.is_unseen:
        return Step(producer)
    dead = replace(view, state=TransactionState.DEAD, log_offset=fact.log_offset, is_unseen=False)
    return _moved(producer, dead)


def _moved(
    producer: ProducerState, view: CoordinatorView, end: TransactionEnd | None = None, *, is_decided: bool = False
) -> Step:
    """The producer with a newer view; ends the verdicts that were emitted about an earlier transaction or state.

    `end` is how the transaction of the view before has ended, if that is known; `is_decided` is whether the log has
    shown a decision about it. The proof starts again on the partitions that the view before held: perhaps no barrier
    has looked then, because the log was not read to its end.
    """
    prior = producer.view
    if prior is None:
        return Step(replace(producer, view=view))
    if prior.is_live:
        let_go = prior.participants - (view.participants if view.is_live else frozenset())
        producer = held_between_barriers(producer, let_go)
    if not producer.emissions:
        return Step(ProducerState(producer.producer_id, producer.spans, view))
    is_same = end is None and view.start_ms == prior.start_ms
    emissions = dict(producer.emissions)
    emitted: list[Finding] = []
    for verdict in producer.emissions:
        if is_same and _stays(verdict, prior, view, is_decided=is_decided):
            continue
        del emissions[verdict]
        if verdict != COVER:
            about = _known_as(producer, prior, verdict)
            emitted.append(TransactionMoved(producer.producer_id, Verdict(verdict), about, view, end))
    begun = None
    if view.state.is_prepare and any(map(_is_about_ongoing, emissions)):
        begun = producer.begun or prior
    return Step(ProducerState(producer.producer_id, producer.spans, view, emissions, begun), tuple(emitted))


def _stays(verdict: str, prior: CoordinatorView, view: CoordinatorView, *, is_decided: bool) -> bool:
    """Whether an emitted verdict is not over, as far as a newer view of the same transaction shows.

    A transaction in Prepare* has not ended, so a verdict about Ongoing stays.
    """
    if verdict == COVER or not view.is_live:
        return family_of(prior) == family_of(view)
    is_in_its_state = RULE_OF[Verdict(verdict)].family is family_of(view)
    return is_in_its_state or (is_decided and _is_about_ongoing(verdict))


def _is_about_ongoing(verdict: str) -> bool:
    return verdict != COVER and RULE_OF[Verdict(verdict)].family is Family.ONGOING


def _known_as(producer: ProducerState, prior: CoordinatorView, verdict: str) -> CoordinatorView:
    """The view that a verdict is about."""
    return producer.begun if producer.begun is not None and _is_about_ongoing(verdict) else prior


def _after_log_notice(producer: ProducerState, notice: PartitionNotice) -> Step:
    """The coordinator's partition is read again: the new reading replaces what is known."""
    view = producer.view
    if notice.kind is NoticeKind.GAP or view is None or view.log != notice.partition:
        return Step(producer)
    return Step(replace(producer, view=replace(view, is_unseen=True)))


def forget_unseen(producer: ProducerState, log: TopicPartition, reading: int = 0) -> Step:
    """After a complete new reading of a coordinator partition: an id that it did not show is gone."""
    view = producer.view
    if view is None or view.log != log:
        return Step(producer)
    if not view.is_unseen and view.reading >= reading:
        return Step(producer)
    return _moved(producer, replace(view, state=TransactionState.DEAD))


# The transitions: how one fact changes the state of one producer id.
#
# `apply(producer, fact, barrier) -> Step(producer, emitted)`. Rule 1: every change of a `ProducerState` is made by
# span.py, this file, evaluate.py with proof.py (barriers), or bucket.py if our clock was set. Rule 2: facts are merged,
# not replayed. A range read twice, or a longer range read after a shorter one, leads to the same state, because a span
# is decided by offsets (its start against the markers read) and a coordinator record by its offset in the log. Rule 3:
# an end is emitted only if a finding was emitted before.

ProducerFact = ProducerSeen | TransactionSeen | TransactionalIdGone | PartitionNotice


def apply(
    producer: ProducerState,
    fact: ProducerFact,
    barrier_number: BarrierNumber,
    *,
    is_consecutive: bool = True,
    read_since: BarrierNumber = NO_BARRIER,
) -> Step:
    """The producer's state after one fact that was read in the batch of barrier `barrier_number`.

    `is_consecutive` is False if something before the range was not read or is gone. It may be a marker: then data of a
    newer epoch has joined nothing. Or it may be a whole transaction: then it is not known who used an epoch.
    `read_since` is the last barrier whose listed end of the partition is at or below the range (reading.py).
    """
    match fact:
        case ProducerSeen():
            return after_ranges(producer, ((fact, is_consecutive, read_since),), barrier_number)
        case TransactionSeen():
            return after_records(producer, fact, fact.view, barrier_number, is_consecutive=is_consecutive)
        case TransactionalIdGone():
            return _after_tombstone(producer, fact)
        case PartitionNotice(partition=partition) if partition.topic == TRANSACTION_STATE_TOPIC:
            return _after_log_notice(producer, fact)
        case PartitionNotice():
            return after_notice(producer, fact)
