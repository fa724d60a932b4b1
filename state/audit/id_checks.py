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
    misplaced = [audited_id for audited_id in (facts.ids or {}).values() if audited_id.is_misplaced]
    if misplaced:
        newest_ms = max(audited_id.last.timestamp_ms for audited_id in misplaced)
        first = misplaced[0]
        yield exposure(
            "coordinator-partitions",
            _CRITICAL,
            f"{counted(len(misplaced), 'transactional id has', 'transactional ids have')} live records in a wrong "
            f"partition of {TRANSACTION_STATE_TOPIC}; the newest is of {rfc3339(newest_ms)}",
            Basis.PROVEN,
            [quoted(audited_id.name) for audited_id in misplaced],
            [
                SeenValue("Metadata", f"partitions of {TRANSACTION_STATE_TOPIC}", str(count)),
                SeenValue("Fetch", f"{log_numbered(first.log.number)}@{first.last.offset}", quoted(first.name)),
            ],
            [remedy("coordinator-partitions", "restart")],
            ids=tuple(audited_id.name for audited_id in misplaced),
            key=TRANSACTION_STATE_TOPIC,
        )


def reused_producer_ids(facts: AuditFacts) -> Iterator[Exposure]:
    """Two transactional ids with one producer id."""
    ids = (facts.ids or {}).values()
    if len({audited_id.records[-1].producer_id for audited_id in ids}) < len(ids):
        times = Counter(audited_id.last.producer_id for audited_id in ids)
        shared: dict[int, list[AuditedId]] = {producer: [] for producer in sorted(times) if times[producer] > 1}
        for audited_id in ids:
            if audited_id.last.producer_id in shared:
                shared[audited_id.last.producer_id].append(audited_id)
        producer, sharing = next(iter(shared.items()))
        names = [audited_id.name for of in shared.values() for audited_id in of]
        yield exposure(
            "producer-id-reused",
            _CRITICAL,
            f"{counted(len(shared), 'producer id belongs', 'producer ids belong')} to several transactional ids: a "
            "marker of one ends data of another",
            Basis.PROVEN,
            [quoted(name) for name in names],
            [
                SeenValue(
                    "Fetch",
                    f"{log_numbered(audited_id.log.number)}@{audited_id.last.offset}",
                    f"{quoted(audited_id.name)}, {producer}",
                )
                for audited_id in sharing
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
    return _MASKED.sub(lambda match: f"{{{match.lastgroup}}}", transactional_id)


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
    forms: dict[str, list[AuditedId]] = {}
    for audited_id in ids:
        forms.setdefault(template_of(audited_id.name), []).append(audited_id)
    return forms


def client_version(audited_id: AuditedId) -> int | None:
    """The transaction version of the id's client in its newest record that has it; None if it is not known."""
    for record in reversed(audited_id.records):
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
        ended = [(audited_id, record) for audited_id in ids for record in audited_id.whole if record.state in PREPARED]
        late = [(audited_id, record) for audited_id, record in ended if _timed_out(record)]
        if not late:
            continue
        names = list(dict.fromkeys(audited_id.name for audited_id, _ in late))
        longest = max(record.updated_ms - (record.start_ms or 0) for _, record in late)
        audited_id, record = late[-1]
        yield exposure(
            "times-out",
            _WARN if len(late) >= _ENOUGH else _INFO,
            f"{quoted(form)}: of {len(ended)} that ended, {counted(len(late), 'transaction was', 'transactions were')} "
            f"aborted after the timeout; the longest was open for {longest} ms",
            Basis.PROVEN,
            [quoted(name) for name in names],
            [
                _seen(
                    audited_id, record, f"PrepareAbort {record.updated_ms - (record.start_ms or 0)} ms after its start"
                )
            ],
            [remedy("times-out", "application")],
            ids=tuple(names),
            key=form,
        )


def _seen(audited_id: AuditedId, record: LoggedState, what: str) -> SeenValue:
    return SeenValue(
        "Fetch", f"{log_numbered(audited_id.log.number)}@{record.offset}", f"{quoted(audited_id.name)}: {what}"
    )


def fenced_while_open(facts: AuditFacts) -> Iterator[Exposure]:
    """Ids that are initialised again and again while a transaction is open."""
    for form, ids in by_form(facts.ids_that_ended).items():
        fenced = [(audited_id, fences) for audited_id in ids if _are_dense(fences := _fences(audited_id.whole))]
        if not fenced:
            continue
        audited_id, fences = fenced[0]
        yield exposure(
            "fenced-while-open",
            _WARN,
            f"{quoted(form)}: initialised {sum(len(of) for _, of in fenced)} times while a transaction was open: two "
            "producers share an id, or one crashes in a loop",
            Basis.PROVEN,
            [quoted(audited_id.name) for audited_id, _ in fenced],
            [_seen(audited_id, fences[-1], "PrepareAbort before the timeout, with a raised epoch, then Empty")],
            [remedy("fenced-while-open", "one")],
            ids=tuple(audited_id.name for audited_id, _ in fenced),
            key=form,
        )


def _fences(records: list[LoggedState]) -> list[LoggedState]:
    """The aborts by InitProducerId: Ongoing, PrepareAbort of a higher epoch before the timeout, soon Empty.

    Only the coordinator raises the epoch, unless the client has the protocol of transaction.version 2.
    """
    fences = []
    for at, record in enumerate(records):
        before = records[at - 1] if at else None
        if record.state is not TransactionState.PREPARE_ABORT or _timed_out(record) or before is None:
            continue
        then = next((later for later in records[at + 1 :] if later.state is not TransactionState.COMPLETE_ABORT), None)
        if (
            before.state is TransactionState.ONGOING
            and not before.client_version
            and (record.producer_epoch > before.producer_epoch or record.producer_id != before.producer_id)
            and then is not None
            and then.state is TransactionState.EMPTY
            and then.timestamp_ms - record.timestamp_ms <= _MINUTE_MS
        ):
            fences.append(record)
    return fences


def _are_dense(records: list[LoggedState]) -> bool:
    """Whether three of them are within ten minutes."""
    pairs = zip(records, records[_ENOUGH - 1 :], strict=False)
    return any(last.timestamp_ms - first.timestamp_ms <= _IN_MS for first, last in pairs)


def one_shot_ids(facts: AuditFacts) -> Iterator[Exposure]:
    """Ids that are used once."""
    for form, ids in by_form(
        audited_id for audited_id in (facts.ids or {}).values() if has_random_part(audited_id.name)
    ).items():
        if len(ids) < _MANY or not is_random(form):
            continue
        idle = [audited_id for audited_id in ids if facts.now_ms - audited_id.last.updated_ms >= _DAY_MS]
        if 10 * len(idle) < 9 * len(ids):
            continue
        late = any(_timed_out(record) for audited_id in ids for record in audited_id.whole)
        yield exposure(
            "one-shot-ids",
            _WARN if late else _INFO,
            f"{quoted(form)}: {len(idle)} of {len(ids)} ids were not used for a day",
            Basis.STATISTICAL,
            [quoted(audited_id.name) for audited_id in ids],
            [
                _seen(
                    idle[0],
                    idle[0].last,
                    f"last record of {rfc3339(idle[0].last.updated_ms)}",
                )
            ],
            [remedy("one-shot-ids", which) for which in ("stable", "streams", "spring", "flink")],
            ids=tuple(audited_id.name for audited_id in ids),
            key=form,
        )


def long_timeout(facts: AuditFacts) -> Iterator[Exposure]:
    """Timeouts that block readers for long after a crash."""
    for form, ids in by_form(
        audited_id for audited_id in (facts.ids or {}).values() if audited_id.last.timeout_ms > _QUARTER_MS
    ).items():
        longest = max(ids, key=lambda audited_id: audited_id.last.timeout_ms)
        two_phase = longest.last.timeout_ms == TWO_PHASE_TIMEOUT_MS
        what = "two-phase commit: only its owner ends a transaction" if two_phase else f"{longest.last.timeout_ms} ms"
        yield exposure(
            "long-timeout",
            _WARN if not two_phase and longest.last.timeout_ms >= _HOUR_MS else _INFO,
            f"{quoted(form)}: the timeout of {counted(len(ids), 'id')} is {what}",
            Basis.BY_SETTING,
            [quoted(audited_id.name) for audited_id in ids],
            [_seen(longest, longest.last, f"timeout {longest.last.timeout_ms} ms")],
            [remedy("long-timeout", "lower"), remedy("long-timeout", "flink")],
            ids=tuple(audited_id.name for audited_id in ids),
            key=form,
        )


def old_protocol(facts: AuditFacts) -> Iterator[Exposure]:
    """Clients without the protocol of transaction.version 2."""
    if (facts.transaction_version or 0) < 2:
        return
    old = [audited_id for audited_id in (facts.ids or {}).values() if client_version(audited_id) == 0]
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
            ids=tuple(audited_id.name for audited_id in old),
            key="clients",
        )


def never_commits(facts: AuditFacts) -> Iterator[Exposure]:
    """Applications whose transactions all abort."""
    for form, ids in by_form(facts.ids_that_ended).items():
        ended = [record for audited_id in ids for record in audited_id.whole if record.state in PREPARED]
        if len(ended) >= _PROBES and all(record.state in _ABORTED for record in ended):
            yield exposure(
                "never-commits",
                _INFO,
                f"{quoted(form)}: none of {len(ended)} transactions committed",
                Basis.PROVEN,
                [quoted(audited_id.name) for audited_id in ids],
                [_seen(ids[0], ids[0].last, str(ids[0].last.state))],
                [remedy("never-commits", "errors")],
                ids=tuple(audited_id.name for audited_id in ids),
                key=form,
            )
