"""Hypothesis strategies for the core's values: small alphabets, so that things meet."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from txnwatch.state.detection.broker_clocks import Clocks, Leadership
from txnwatch.state.detection.bucket_indexes import Agenda
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.reading import LACKS, READ_WHOLE, Lack, LackSince, Reading, Standing
from txnwatch.state.model.clocks import Clock, Leader
from txnwatch.state.model.completion_latency import BOUNDS_MS, Completion, Latencies, Stage
from txnwatch.state.model.facts import (
    Barrier,
    CensusListing,
    CensusTaken,
    CompletionTimes,
    DataRead,
    Fact,
    FirstDecision,
    Joined,
    LastBatch,
    LastStable,
    LogRead,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    StandsAt,
    Throttled,
    TopicVolume,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.model.findings import OpenSpan, OpenTransaction
from txnwatch.state.model.transaction import (
    COVER,
    UNKNOWN_PREVIOUS,
    CoordinatorView,
    Emission,
    EpochUse,
    LossProof,
    Marker,
    ProducerState,
    Span,
    TransactionState,
    Witness,
)
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.model.verdicts import Verdict

offsets = st.integers(0, 60)
epochs = st.integers(0, 3)
times = st.integers(0, 10**6)
topic_ids = st.sampled_from(["one", "two"])
producer_ids = st.integers(0, 3)
data_partitions = st.builds(TopicPartition, st.sampled_from(["orders", "pay-ments"]), st.integers(0, 1))
log_numbers = st.integers(0, 2)
logs = log_numbers.map(log_numbered)
partitions = st.one_of(data_partitions, logs)
leaders = st.builds(Leader, st.integers(1, 2), epochs, st.sampled_from(["", "", "a1"]))
emissions = st.builds(Emission, st.integers(1, 9), times)
markers = st.builds(Marker, offsets, epochs, st.booleans(), epochs, times)
spans = st.builds(
    Span,
    topic_ids,
    offsets,
    st.none() | epochs,
    epochs,
    offsets,
    st.none() | times,
    times,
    st.integers(0, 9),
    uncovered_at=st.none() | st.integers(0, 9),
    by_census=st.booleans(),
    is_ahead_of_scan=st.booleans(),
    seen_at=st.none() | st.integers(0, 9),
    reseen_at=st.none() | st.integers(0, 9),
    census_absent_at=st.none() | st.integers(0, 9),
    ended_at=st.none() | st.integers(0, 9),
    was_proven_unowned=st.booleans(),
    absorbed=st.booleans(),
    emission=st.none() | emissions,
    began_after=st.integers(0, 9),
)
views = st.builds(
    CoordinatorView,
    st.sampled_from(["checkout-1", "käse", ""]),
    log_numbers,
    offsets,
    st.sampled_from(TransactionState),
    epochs,
    st.integers(0, 2147483647),
    st.none() | times,
    times,
    times,
    st.frozensets(data_partitions, max_size=3),
    st.sampled_from([None, 9]),
    reading=st.integers(0, 3),
    data_epoch=st.none() | epochs,
    epoch_use=st.sampled_from(EpochUse),
    coordinator_epoch=st.none() | epochs,
    is_unseen=st.booleans(),
    since_ms=st.none() | times,
    previous_outcome=st.sampled_from([None, UNKNOWN_PREVIOUS, "commit", "abort"]),
    previous_end_epoch=st.none() | epochs,
    first_unused=st.none() | epochs,
    also_used_by=st.sampled_from([None, None, "restored"]),
    client_transaction_version=st.sampled_from([0, 2]),
    reign=st.none() | st.integers(1, 9),
)
logged_views = views.map(lambda view: replace(view, is_unseen=False))  # a record that was just read has been seen
producers = st.builds(
    ProducerState,
    producer_ids,
    st.dictionaries(data_partitions, spans, max_size=3),
    st.none() | views,
    st.dictionaries(
        st.sampled_from([Verdict.LATE, Verdict.LONG_RUNNING, Verdict.STUCK_PREPARE]).map(str), emissions, max_size=2
    ),
    st.none() | views,
    st.booleans(),
)
witnesses = st.builds(
    Witness,
    views,
    log_epoch=st.none() | epochs,
    is_begun_under_it=st.booleans(),
    proof=st.sampled_from(LossProof),
)


@st.composite
def nearly_at_rest(draw: st.DrawFn) -> ProducerState:
    """A producer with a live transaction that holds what is open, but for one thing or none."""
    flaws: dict[str, st.SearchStrategy[object]] = {
        "uncovered_at": st.integers(0, 9),
        "census_absent_at": st.integers(0, 9),
        "ended_at": st.integers(0, 9),
        "was_proven_unowned": st.just(True),
        "absorbed": st.just(True),
        "emission": emissions,
    }
    found = {}
    for partition in draw(st.sets(data_partitions, max_size=2)):
        by_census = draw(st.booleans())
        span = Span(draw(topic_ids), 5, 0, 0, 5, draw(times), draw(times), 0, by_census=by_census)
        span = replace(span, is_ahead_of_scan=by_census and draw(st.booleans()))
        name = draw(st.sampled_from(["", *flaws]))
        found[partition] = replace(span, **{name: draw(flaws[name])}) if name else span
    view = CoordinatorView(
        "checkout-1",
        draw(log_numbers),
        draw(offsets),
        draw(st.sampled_from([TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.EMPTY])),
        0,
        draw(st.sampled_from([60_000, 900_000, 2147483647])),
        draw(times),
        0,
        draw(times),
        frozenset(found) if draw(st.booleans()) else draw(st.frozensets(data_partitions)),
        reading=draw(st.integers(0, 1)),
        data_epoch=draw(st.none() | epochs),
        epoch_use=draw(st.sampled_from(EpochUse)),
        coordinator_epoch=draw(st.none() | epochs),
        since_ms=draw(st.one_of(times, st.none())),
    )
    emitted = {} if draw(st.booleans()) else {draw(st.sampled_from([COVER, str(Verdict.LATE)])): draw(emissions)}
    return ProducerState(1, found, draw(st.sampled_from([view, view, view, None])), emitted)


open_transactions = st.builds(
    OpenTransaction,
    producer_ids,
    st.sampled_from([None, "checkout-1"]),
    st.sampled_from(["Ongoing", "unowned"]),
    times,
    st.none() | st.integers(0, 99),
    st.lists(st.builds(OpenSpan, data_partitions, offsets, times), max_size=2).map(tuple),
    timeout_ms=st.none() | st.integers(0, 99_999),
)
ends = st.builds(
    Completion,
    st.sampled_from([TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]),
    times,
    times,
    epochs,
)
_decisions = st.sampled_from([state for state in TransactionState if state.outcome is not None])
latencies = st.builds(
    Latencies,
    st.sampled_from(Stage),
    st.sampled_from(TransactionState),
    times,
    st.lists(st.integers(0, 9), min_size=len(BOUNDS_MS) + 1, max_size=len(BOUNDS_MS) + 1).map(tuple),
)
brokers = st.integers(1, 3)
clocks = st.builds(Clock, st.integers(-9999, 9999), st.none() | st.integers(-9999, 9999), times, st.none() | times)
OF_DATA = [Lack.REST, Lack.RANGE, Lack.CENSUS, Lack.NAME, Lack.DESCRIPTION]
OF_LOG = [Lack.RANGE, Lack.RANGE_BEGUN, Lack.NEW_READING, Lack.NEW_READING_BEGUN, Lack.RECREATED]
last_batches = st.builds(LastBatch, epochs, st.none() | st.integers(0, 9))
lacking = st.builds(LackSince, offsets, st.integers(0, 9), st.integers(1, 9), times)


def without_included(lacks: dict[Lack, LackSince]) -> dict[Lack, LackSince]:
    included = {other for lack in lacks for other in LACKS[lack].includes}
    return {lack: known for lack, known in lacks.items() if lack not in included}


def readings_of(lacks: list[Lack], **details: st.SearchStrategy[object]) -> st.SearchStrategy[Reading]:
    """Readings with some lacks of one kind of partition; not those of which one includes another one."""
    found = st.dictionaries(st.sampled_from(lacks), lacking, max_size=3)
    return st.builds(Reading, found.map(without_included), **details)


data_readings = readings_of(
    OF_DATA,
    whole_at=st.none() | st.integers(0, 9),
    standing=st.none() | st.builds(Standing, offsets, times, st.booleans(), st.none() | times),
)
log_readings = readings_of(OF_LOG, number=st.integers(0, 9), hole_end=offsets, last_batch=st.none() | last_batches)
buckets = st.builds(
    BucketState,
    agenda=st.dictionaries(producer_ids, times, max_size=3).map(Agenda),
    readings=st.builds(
        lambda data, logs: {at: known for at, known in {**data, **logs}.items() if known != READ_WHOLE},
        st.dictionaries(data_partitions, data_readings, max_size=2),
        st.dictionaries(logs, log_readings, max_size=2),
    ),
    clocks=st.builds(
        Clocks,
        st.dictionaries(brokers, clocks, max_size=2),
        st.dictionaries(
            logs,
            st.builds(Leadership, leaders, times, st.integers(1, 9), st.none() | times),
            max_size=2,
        ),
    ),
    assumed_ms=st.dictionaries(brokers, st.integers(-9999, 9999), max_size=2),
    policy_digest=st.none() | times,
    states=st.dictionaries(st.sampled_from(["Ongoing", "unowned"]), st.integers(1, 9), max_size=2),
    open_list_digest=st.none() | times,
    ends_digest=st.none() | times,
    followed=st.dictionaries(producer_ids, open_transactions, max_size=2),
    holding=st.dictionaries(producer_ids, open_transactions, max_size=2),
)
barriers = st.builds(
    Barrier,
    st.integers(1, 9),
    times,
    times,
    st.frozensets(data_partitions, max_size=2),
    st.frozensets(data_partitions, max_size=2),
    st.frozensets(logs, max_size=2),
    st.dictionaries(partitions, offsets, max_size=2),
    st.frozensets(data_partitions, max_size=2),
    st.dictionaries(logs, leaders, max_size=2),
    st.dictionaries(brokers, clocks, max_size=2),
    st.none() | times,
    st.dictionaries(logs, offsets, max_size=2),
    st.booleans(),
    st.frozensets(logs, max_size=2),
    st.dictionaries(logs, last_batches, max_size=2),
    st.dictionaries(logs, st.none() | last_batches, max_size=2),
    st.just(0) | st.integers(-9999, 9999),
    st.dictionaries(data_partitions, offsets, max_size=2),
    st.frozensets(data_partitions, max_size=2),
    st.frozensets(logs, max_size=2),
    st.dictionaries(data_partitions, st.builds(StandsAt, offsets, st.integers(0, 9), st.integers(1, 9)), max_size=2),
)
notices = st.builds(
    PartitionNotice,
    st.sampled_from(NoticeKind),
    partitions,
    topic_ids,
    offsets,
    offsets,
    st.sampled_from(["no answer", "a reset connection"]),
    st.booleans(),
)


joins = st.builds(Joined, offsets, epochs, offsets, epochs, st.none() | markers)
census_listings = st.builds(CensusListing, topic_ids, offsets, st.none() | offsets, st.booleans(), st.booleans())
censuses = st.builds(
    CensusTaken,
    st.dictionaries(data_partitions, census_listings, max_size=2),
    st.frozensets(data_partitions, max_size=2),
    st.booleans(),
    st.frozensets(data_partitions, max_size=2),
)


@st.composite
def producers_seen(draw: st.DrawFn) -> ProducerSeen:
    """A range that a fold could have made: offsets inside the range and in order."""
    start = draw(offsets)
    marks = sorted(draw(st.lists(st.integers(start, start + 40), min_size=0, max_size=6, unique=True)))
    marker_offsets = marks[1:-1] if len(marks) > 2 else marks[1:2]
    found = [Marker(offset, draw(epochs), draw(st.booleans()), 0, draw(times)) for offset in marker_offsets]
    first = marks[0] if marks and draw(st.booleans()) else None
    after = marks[-1] if len(marks) > 2 and draw(st.booleans()) else None
    open_offset = after if found else first
    closed = first if len(found) == 1 else found[-1].offset - 1 if found else None
    is_free = len(found) < 2 or found[-1].offset - 1 > found[-2].offset
    return ProducerSeen(
        draw(data_partitions),
        draw(topic_ids),
        draw(producer_ids),
        start,
        start + 41,
        first,
        draw(epochs) if first is not None else None,
        found[0] if found else None,
        found[-1] if found else None,
        open_offset,
        draw(epochs) if open_offset is not None else None,
        draw(epochs),
        after if after is not None else first,
        draw(st.none() | times),
        draw(times),
        draw(st.none() | joins) if first is not None else None,
        closed if is_free and draw(st.booleans()) else None,
        draw(st.booleans()) if open_offset is not None else False,
    )


transactions_seen = st.builds(
    TransactionSeen,
    producer_ids,
    logged_views,
    st.frozensets(data_partitions, max_size=2),
    st.none() | ends,
    st.booleans(),
    st.none()
    | st.builds(
        FirstDecision, _decisions, st.none() | times, st.none() | epochs, offsets, times, st.booleans(), st.booleans()
    ),
)
completion_times = st.builds(CompletionTimes, logs, st.lists(latencies, max_size=2).map(tuple))
ids_gone = st.builds(TransactionalIdGone, st.sampled_from(["checkout-1", "käse"]), log_numbers, offsets)
open_described = st.builds(OpenDescribed, data_partitions, producer_ids, epochs, offsets, st.none() | times, times)
last_stable_offsets = st.builds(LastStable, data_partitions, topic_ids, offsets)
throttle_times = st.builds(Throttled, st.dictionaries(st.sampled_from(["Fetch", "ListOffsets"]), offsets, max_size=2))
volumes = st.builds(TopicVolume, offsets, offsets, st.booleans())
data_read = st.builds(DataRead, st.dictionaries(st.sampled_from(["orders", "payments"]), volumes, max_size=2))
log_reads = st.builds(
    LogRead,
    st.dictionaries(logs, offsets, max_size=2),
    st.dictionaries(brokers, clocks, max_size=2),
    st.frozensets(logs, max_size=2),
    st.dictionaries(logs, last_batches, max_size=2),
    st.dictionaries(logs, st.none() | last_batches, max_size=2),
)
producer_facts: st.SearchStrategy[Fact] = st.one_of(
    producers_seen(),
    transactions_seen,
    ids_gone,
    notices,
)
facts: st.SearchStrategy[Fact] = st.one_of(
    *(producer_facts, completion_times, censuses, open_described),
    *(last_stable_offsets, throttle_times, data_read, log_reads),
)
