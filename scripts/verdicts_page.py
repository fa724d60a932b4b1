"""docs/verdicts.md: the tables of verdicts, of the proof, and of what ends a span or restarts its proof."""

from __future__ import annotations

from txnwatch.state.detection.proof import PHASE_MEANS, TRANSITIONS, Output, Sight
from txnwatch.state.detection.span_events import EFFECTS, Effect
from txnwatch.state.model.verdicts import REASON_MEANS, VERDICTS


def verdicts_page(generated: str) -> str:
    """docs/verdicts.md."""
    lines = [
        "# Verdicts",
        "",
        generated,
        "Ongoing and Prepare* (PrepareCommit or PrepareAbort) are states of a transaction in the coordinators' log.",
        "The scan interval is how often a coordinator looks for expired transactions, the brokers' setting",
        "`transaction.abort.timed.out.transaction.cleanup.interval.ms`.",
        "",
        "| verdict | severity | when | meaning | ends by itself |",
        "|---|---|---|---|---|",
        *(
            f"| `{rule.verdict}` | {rule.severity} | {rule.when} | {rule.meaning} | {rule.ends_by_itself} |"
            for rule in VERDICTS
        ),
        "",
        "## Reasons of `hanging`",
        "",
        "| reason | why no marker will come |",
        "|---|---|",
        *(f"| `{reason}` | {why} |" for reason, why in REASON_MEANS.items()),
        "",
        *_proof(),
        *_span_events(),
    ]
    return "\n".join(lines)


def _proof() -> list[str]:
    """The table that state/detection/span_look.py executes."""
    cells = {
        key: f"{after.phase}" + (f"; {after.output}" if after.output is not Output.NOTHING else "")
        for key, after in TRANSITIONS.items()
    }
    return [
        "## How a span is proven to hang",
        "",
        "At each barrier, an open span is in one of these phases. The columns are what the barrier shows:",
        "",
        "- *held*: a live transaction of the same producer id has the partition of the span as a participant. It",
        "  holds the span: its marker will end the span.",
        "- *unowned*: no live transaction holds the span.",
        "- *still open*: an earlier barrier has shown that no live transaction held the span. Since then txnwatch has",
        "  read the partition to a later end, and has found no marker. If the owner's partition of the coordinators'",
        "  log had an election since the previous barrier, the column *unowned* applies: the election can have removed",
        "  the record of a transaction that held the span, and whose marker is not read yet.",
        "",
        "A cell has the next phase, and the output. *candidate*: txnwatch makes a candidate, and makes it again after",
        "longer and longer pauses; a fresh read has to confirm it. *wait*: there is no output until the partition is",
        "read to a later end. In this table a dash means that the case is not possible. A barrier that proves nothing",
        "changes nothing.",
        "",
        f"| phase | meaning | {' | '.join(Sight)} |",
        f"|---|---|{'---|' * len(Sight)}",
        *(
            f"| {phase} | {meaning} | {' | '.join(cells.get((phase, sight), '-') for sight in Sight)} |"
            for phase, meaning in PHASE_MEANS.items()
        ),
        "",
    ]


def _span_events() -> list[str]:
    """The table that state/detection/span_events.py executes."""
    return [
        "## What ends a span, or restarts its proof",
        "",
        "| event | the span | its proof | why |",
        "|---|---|---|---|",
        *(
            f"| {event} | {_left(effect)} | {_proof_after(effect)} | {effect.why} |"
            for event, effect in EFFECTS.items()
        ),
        "",
    ]


def _left(effect: Effect) -> str:
    if effect.end is not None:
        return f"ends: `{effect.end}`"
    return "only its first batch is left" if effect.keeps_first_batch else "unchanged"


def _proof_after(effect: Effect) -> str:
    if effect.end is not None:
        return "-"
    return "starts again" if effect.restarts_proof else "continues"
