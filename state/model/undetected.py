"""What a watch does not detect in each coordinator view: the verdicts, and the text for its operator.

docs/decisions/0027-coordinator-view.md has what each view proves.
"""

from __future__ import annotations

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.verdicts import VERDICTS, Verdict

# What a watch detects in each view. A new verdict belongs to the log until a lower view detects it, too.
_DETECTED: dict[CoordinatorAccess, frozenset[Verdict]] = {
    CoordinatorAccess.LOG: frozenset(Verdict),
    CoordinatorAccess.API: frozenset({Verdict.HANGING, Verdict.STRAY_WRITE}),
    CoordinatorAccess.NONE: frozenset({Verdict.LATE}),
}

# What else the views below the log lack.
_LACKS: dict[CoordinatorAccess, str] = {
    CoordinatorAccess.API: "the outcome of a hang is unknown, and nothing is aborted automatically",
    CoordinatorAccess.NONE: "no transactional id is known, and only data that is open for longer than any transaction "
    f"may be is reported, as {Verdict.LATE}",
}


def undetected(access: CoordinatorAccess) -> tuple[Verdict, ...]:
    """The verdicts that no watch detects in this coordinator view, the worst first."""
    return tuple(rule.verdict for rule in VERDICTS if rule.verdict not in _DETECTED[access])


def undetected_text(access: CoordinatorAccess) -> str:
    """What a watch does not detect in a view below the log, as text for its operator."""
    *first, last = undetected(access)
    return f"{', '.join(first)} and {last} are not detected; {_LACKS[access]}"
