"""Expected outcomes in tests: a log whose leader never changed, and what is said about the data."""

from __future__ import annotations

from txnwatch.state.evidence.outcome import Doubt
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.transaction import CoordinatorView, Witness


def first_leader(view: CoordinatorView | None) -> Witness | None:
    """What a log without an election shows; the view must be of its first leader."""
    return Witness(view, log_epoch=0) if view is not None else None


def said(found: ExpectedOutcome | Doubt) -> str:
    """The outcome, or the code of the doubt."""
    return found.kind if isinstance(found, Doubt) else found
