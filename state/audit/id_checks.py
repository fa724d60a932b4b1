"""Checks of transactional ids by their records in the coordinators' log. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from txnwatch.state.audit.audit_check import Basis, ExposureSeverity
from txnwatch.state.audit.audit_facts import PREPARED, AuditedId, AuditFacts, LoggedState
from txnwatch.state.audit.exposures import Exposure, SeenValue, exposure, remedy
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, log_numbered, rfc3339
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS
from txnwatch.state.text import counted, quoted

_CRITICAL, _WARN, _INFO = ExposureSeverity
_ENOUGH, _MANY, _PROBES = 3, 100, 20
_DAY_MS, _HOUR_MS, _QUARTER_MS, _MINUTE_MS = 86_400_000, 3_600_000, 900_000, 60_000
_IN_MS: Final = 10 * _MINUTE_MS
_ABORTED: Final = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})
# Only these records have the version of the client: PrepareAbort and CompleteAbort may have that of the broker, and
# Empty has that of the transaction before.
_OF_THE_CLIENT: Final = frozenset(
    {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}
)


def misplaced_ids(facts: AuditFacts) -> Iterator[Exposure]:
    """KAFKA-20029: partitions were added to the coordinators' log."""
    count = len(facts.log.partitions) if facts.log is not None else 0
    found = [one for one in (facts.ids or {}).values() if one.is_misplaced]
    if found:
        newest_ms = max(one.last.timestamp_ms for one in found)
        first = found[0]
        yield exposure(
            "coordinator-partitions",
            _CRITICAL,
            f"{counted(len(found), 'transactional id has', 'transactional ids have')} live records in a wrong "
            f"partition of {TRANSACTION_STATE_TOPIC}; the newest is of {rfc3339(newest_ms)}",
            Basis.PROVEN,
            [quoted(one.name) for one in found],
            [
                SeenValue("Metadata", f"partitions of {TRANSACTION_STATE_TOPIC}", str(count)),
                SeenValue("Fetch", f"{log_numbered(first.log.number)}@{first.last.offset}", quoted(first.name)),
            ],
            [remedy("coordinator-partitions", "restart")],
            ids=tuple(one.name for one in found),
            key=TRANSACTION_STATE_TOPIC,
        )


def reused_producer_ids(facts: AuditFacts) -> Iterator[Exposure]:
    """Two transactional ids with one producer id."""
    ids = (facts.ids or {}).values()
    if len({one.records[-1].producer_id for one in ids}) < len(ids):
        times = Counter(one.last.producer_id for one in ids)
        shared: dict[int, list[AuditedId]] = {producer: [] for producer in sorted(times) if times[producer] > 1}
        for one in ids:
            if one.last.producer_id in shared:
                shared[one.last.producer_id].append(one)
        producer, found = next(iter(shared.items()))
        names = [one.name for of in shared.values() for one in of]
        yield exposure(
            "producer-id-reused",
            _CRITICAL,
            f"{counted(len(shared), 'producer id belongs', 'producer ids belong')} to several transactional ids: a "
            "marker of one ends data of another",
            Basis.PROVEN,
            [quoted(name) for name in names],
            [
                SeenValue(
                    "Fetch", f"{log_numbered(one.log.number)}@{one.last.offset}", f"{quoted(one.name)}, {producer}"
                )
                for one in found
            ],
            [remedy("producer-id-reused", "restart")],
            ids=tuple(names),
        )


# The form of a transactional id: its variable parts are masked, so that the ids of one application are one finding.

_UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_HEX: Final = r"(?<![0-9a-zA-Z])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}(?![0-9a-zA-Z])"
_LONG: Final = r"(?<![0-9])[1-9][0-9]{9,19}(?![0-9])"  # with zeros in front it is a counter
_MASKED: Final = re.compile(f"(?P<uuid>{_UUID})|(?P<hex>{_HEX})|(?P<random>{_LONG})|(?P<n>[0-9]+)")
_HAS_RANDOM: Final = re.compile(f"{_UUID}|{_HEX}|{_LONG}".encode())
_RANDOM: Final = ("{uuid}", "{hex}", "{random}")
_LONGEST = 300  # a longer id is its own form: masking it takes too long


def template_of(transactional_id: str) -> str:
    """The id with its variable parts masked, for example `checkout-{n}`."""
    if len(transactional_id) > _LONGEST:
        return transactional_id
    return _MASKED.sub(lambda found: f"{{{found.lastgroup}}}", transactional_id)


# No expression tells these characters apart, so a million ids of one form are few texts to search.
_ALIKE: Final = bytes.maketrans(b"23456789bcdefBCDEF", b"11111111aaaaaAAAAA")


def has_random_part(transactional_id: str) -> bool:
    """Whether a part of the id looks random."""
    return _searched(transactional_id.encode().translate(_ALIKE))


@lru_cache(10_000)
def _searched(text: bytes) -> bool:
    return _HAS_RANDOM.search(text) is not None


def is_random(template: str) -> bool:
    """Whether a variable part is random, and not a small number."""
    return any(part in template for part in _RANDOM)


# What ids do. Ids of one form are one finding.


def by_form(ids: Iterable[AuditedId]) -> dict[str, list[AuditedId]]:
    """The ids by their form."""
    found: dict[str, list[AuditedId]] = {}
    for one in ids:
        found.setdefault(template_of(one.name), []).append(one)
    return found


def client_version(one: AuditedId) -> int | None:
    """The transaction version of the id's client in its newest record that has it; None if it is not known."""
    for record in reversed(one.records):
        if record.state in _OF_THE_CLIENT:
            return record.client_version
    return None


def _timed_out(record: LoggedState) -> bool:
    """Whether the transaction was aborted after it had been open for its timeout."""
    return (
        record.state is TransactionState.PREPARE_ABORT
        and record.start_ms is not None
        and 0 < record.timeout_ms <= record.updated_ms - record.start_ms
    )


def times_out(facts: AuditFacts) -> Iterator[Exposure]:
    """Transactions that their coordinator aborted at their timeout."""
    for form, ids in by_form(facts.ids_that_ended).items():
        ended = [(one, record) for one in ids for record in one.whole if record.state in PREPARED]
        late = [(one, record) for one, record in ended if _timed_out(record)]
        if not late:
            continue
        names = list(dict.fromkeys(one.name for one, _ in late))
        longest = max(record.updated_ms - (record.start_ms or 0) for _, record in late)
        one, record = late[-1]
        yield exposure(
            "times-out",
            _WARN if len(late) >= _ENOUGH else _INFO,
            f"{quoted(form)}: of {len(ended)} that ended, {counted(len(late), 'transaction was', 'transactions were')} "
            f"aborted after the timeout; the longest was open for {longest} ms",
            Basis.PROVEN,
            [quoted(name) for name in names],
            [_seen(one, record, f"PrepareAbort {record.updated_ms - (record.start_ms or 0)} ms after its start")],
            [remedy("times-out", "application")],
            ids=tuple(names),
            key=form,
        )


def _seen(one: AuditedId, record: LoggedState, what: str) -> SeenValue:
    return SeenValue("Fetch", f"{log_numbered(one.log.number)}@{record.offset}", f"{quoted(one.name)}: {what}")


def fenced_while_open(facts: AuditFacts) -> Iterator[Exposure]:
    """Ids that are initialised again and again while a transaction is open."""
    for form, ids in by_form(facts.ids_that_ended).items():
        found = [(one, fences) for one in ids if _are_dense(fences := _fences(one.whole))]
        if not found:
            continue
        one, fences = found[0]
        yield exposure(
            "fenced-while-open",
            _WARN,
            f"{quoted(form)}: initialised {sum(len(of) for _, of in found)} times while a transaction was open: two "
            "producers share an id, or one crashes in a loop",
            Basis.PROVEN,
            [quoted(one.name) for one, _ in found],
            [_seen(one, fences[-1], "PrepareAbort before the timeout, with a raised epoch, then Empty")],
            [remedy("fenced-while-open", "one")],
            ids=tuple(one.name for one, _ in found),
            key=form,
        )


def _fences(records: list[LoggedState]) -> list[LoggedState]:
    """The aborts by InitProducerId: Ongoing, PrepareAbort of a higher epoch before the timeout, soon Empty.

    Only the coordinator raises the epoch, unless the client has the protocol of transaction.version 2.
    """
    found = []
    for at, record in enumerate(records):
        before = records[at - 1] if at else None
        if record.state is not TransactionState.PREPARE_ABORT or _timed_out(record) or before is None:
            continue
        then = next((one for one in records[at + 1 :] if one.state is not TransactionState.COMPLETE_ABORT), None)
        if (
            before.state is TransactionState.ONGOING
            and not before.client_version
            and (record.producer_epoch > before.producer_epoch or record.producer_id != before.producer_id)
            and then is not None
            and then.state is TransactionState.EMPTY
            and then.timestamp_ms - record.timestamp_ms <= _MINUTE_MS
        ):
            found.append(record)
    return found


def _are_dense(records: list[LoggedState]) -> bool:
    """Whether three of them are within ten minutes."""
    pairs = zip(records, records[_ENOUGH - 1 :], strict=False)
    return any(last.timestamp_ms - first.timestamp_ms <= _IN_MS for first, last in pairs)


def one_shot_ids(facts: AuditFacts) -> Iterator[Exposure]:
    """Ids that are used once."""
    for form, ids in by_form(one for one in (facts.ids or {}).values() if has_random_part(one.name)).items():
        if len(ids) < _MANY or not is_random(form):
            continue
        idle = [one for one in ids if facts.now_ms - one.last.updated_ms >= _DAY_MS]
        if 10 * len(idle) < 9 * len(ids):
            continue
        late = any(_timed_out(record) for one in ids for record in one.whole)
        yield exposure(
            "one-shot-ids",
            _WARN if late else _INFO,
            f"{quoted(form)}: {len(idle)} of {len(ids)} ids were not used for a day",
            Basis.STATISTICAL,
            [quoted(one.name) for one in ids],
            [
                _seen(
                    idle[0],
                    idle[0].last,
                    f"last record of {rfc3339(idle[0].last.updated_ms)}",
                )
            ],
            [remedy("one-shot-ids", which) for which in ("stable", "streams", "spring", "flink")],
            ids=tuple(one.name for one in ids),
            key=form,
        )


def long_timeout(facts: AuditFacts) -> Iterator[Exposure]:
    """Timeouts that block readers for long after a crash."""
    for form, ids in by_form(one for one in (facts.ids or {}).values() if one.last.timeout_ms > _QUARTER_MS).items():
        longest = max(ids, key=lambda one: one.last.timeout_ms)
        two_phase = longest.last.timeout_ms == TWO_PHASE_TIMEOUT_MS
        what = "two-phase commit: only its owner ends a transaction" if two_phase else f"{longest.last.timeout_ms} ms"
        yield exposure(
            "long-timeout",
            _WARN if not two_phase and longest.last.timeout_ms >= _HOUR_MS else _INFO,
            f"{quoted(form)}: the timeout of {counted(len(ids), 'id')} is {what}",
            Basis.BY_SETTING,
            [quoted(one.name) for one in ids],
            [_seen(longest, longest.last, f"timeout {longest.last.timeout_ms} ms")],
            [remedy("long-timeout", "lower"), remedy("long-timeout", "flink")],
            ids=tuple(one.name for one in ids),
            key=form,
        )


def old_protocol(facts: AuditFacts) -> Iterator[Exposure]:
    """Clients without the protocol of transaction.version 2."""
    if (facts.transaction_version or 0) < 2:
        return
    old = [one for one in (facts.ids or {}).values() if client_version(one) == 0]
    forms = by_form(old)
    if forms:
        first = old[0]
        yield exposure(
            "old-protocol",
            _INFO,
            f"{counted(len(old), 'transactional id')} of {counted(len(forms), 'form')}: the client does not have the "
            "protocol of version 2",
            Basis.PROVEN,
            [quoted(form) for form in forms],
            [_seen(first, first.last, "client transaction version 0")],
            [remedy("old-protocol", "java"), remedy("old-protocol", "other")],
            ids=tuple(one.name for one in old),
            key="clients",
        )


def never_commits(facts: AuditFacts) -> Iterator[Exposure]:
    """Applications whose transactions all abort."""
    for form, ids in by_form(facts.ids_that_ended).items():
        ended = [record for one in ids for record in one.whole if record.state in PREPARED]
        if len(ended) >= _PROBES and all(record.state in _ABORTED for record in ended):
            yield exposure(
                "never-commits",
                _INFO,
                f"{quoted(form)}: none of {len(ended)} transactions committed",
                Basis.PROVEN,
                [quoted(one.name) for one in ids],
                [_seen(ids[0], ids[0].last, str(ids[0].last.state))],
                [remedy("never-commits", "errors")],
                ids=tuple(one.name for one in ids),
                key=form,
            )
