"""What `explain` says if the records of an id are not in the partition of the coordinators' log that its name has."""

from __future__ import annotations

from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explanation import Explanation
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.values import SpanStart
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import abort_marker
from txnwatch.state.telling.moved_ids import MovedId, moved_text, told_of
from txnwatch.state.telling.renderings import first_command
from txnwatch.state.telling.statements import StatementKind
from txnwatch.streaming.log.moved_records import read_moved

MOVED = "moved"
_REPLACED = frozenset({StatementKind.OUTCOME, StatementKind.SAFE, StatementKind.NEXT})


def with_moved(
    question: Question, explained: Explanation, hang: SpanStart | None, moved: MovedId | None = None
) -> Explanation:
    """The explanation of a hang whose outcome is not known: what happened, if its id was lost so.

    Nothing was committed if the last record of its producer id shows that no end was decided. `hang` is the open span.
    If `moved` is given, the text has said what happened.
    """
    name = explained.transactional_id
    is_unknown = explained.state == Verdict.HANGING and explained.expected_outcome == ExpectedOutcome.UNKNOWN
    if name is None or hang is None or not is_unknown:
        return explained
    found = moved if moved is not None else read_moved(question.cluster, name)
    if found is None or found.producer_id != hang.producer_id or not found.has_open_end:
        return explained
    told = (
        *(one for one in explained.told if one.kind not in _REPLACED),
        *told_of(found, abort_marker(question.origin, hang.place)),
    )
    before = {one.text for one in explained.told if one.kind in _REPLACED}
    text = [line for line in explained.text if line not in before]
    outcome, safe, *_ = (one.text for one in told if one.kind in _REPLACED)
    happened = () if moved is not None else (moved_text(found), outcome)
    return replace(explained, told=told, next=first_command(told), text=(*text, *happened, safe))
