"""The table of disturbances for docs/faults.md, from docs/disturbances.json: results of the last `make faults`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from page_tables import places

_ABOUT = """\
## Disturbances

A disturbance is a fault of a machine, a network or a server that txnwatch or the brokers use. It is not a fault of a
transaction. The cluster has two brokers. Both have data; broker 1 also has all coordinators and the events topic.
Transactional applications run all the time, and one healthy transaction stays open. Two seconds after the disturbance
begins, a stray write makes a hang. If the disturbance prevents writes to the partition, the stray write is made just
before it. *Right again* is the time from the end of the disturbance until every partition is proven, no event waits,
and the hang is on the events topic. It includes the start of Spark's query, which takes some seconds. The jump of the
clock of txnwatch ends with a jump in the other direction. The query starts again after that jump, too; this start is
included in *right again*. Then another hang is made: *next hang* is the time to its event. A broker that does not
answer can also delay `hanging` on partitions of other brokers: see [Known
limits](limits.md#hangs-while-a-broker-cannot-be-reached).

The test of a row checks everything that *what you see* has. The log and the metrics can show more.

The disk of txnwatch is a small file system that is filled. A preloaded library delays each change of a file of
txnwatch. It also changes the time that the processes of txnwatch and the brokers read; the clock of the machine is not
changed. To cut the network, a proxy keeps the connections open and forwards nothing. A suspended broker has received
SIGSTOP.
"""
_WHAT_TO_DO = "The [runbook](runbook.md#watcher) has what to do in each case."


def disturbances(root: Path) -> list[str]:
    """The section."""
    rows: list[dict[str, Any]] = json.loads((root / "docs" / "disturbances.json").read_text())
    wrong = [text for row in rows for text in row["false_verdicts"]]
    versions = sorted({row["version"] for row in rows})
    return [
        _ABOUT,
        f"{places(rows)}. Kafka {' and '.join(versions)}; {len(rows)} disturbances. False verdicts: "
        + (f"{len(wrong)}: {'; '.join(wrong)}." if wrong else "none."),
        "",
        "| disturbance | for | what you see | the hang | right again | next hang |",
        "|---|---|---|---|---|---|",
        *map(_row, rows),
        "",
        _WHAT_TO_DO,
    ]


def _row(row: dict[str, Any]) -> str:
    found = f"found meanwhile, after {row['found_s']:.1f} s" if row["is_found_meanwhile"] else "found afterwards"
    return (
        f"| {row['fault']} | {row['lasts_s']:.0f} s | {row['shown']} | {found} "
        f"| {row['right_after_s']:.1f} s | {row['found_afterwards_s']:.1f} s |"
    )
