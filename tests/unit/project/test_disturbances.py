"""docs/disturbances.json has a row for each disturbance, and each row shows what the page says about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.disturbance_results import DisturbanceResult
from support.disturbance_signs import is_said, kind_of
from support.disturbances import DISTURBANCES, Disturbance

ROWS = [
    DisturbanceResult(**row)
    for row in json.loads((Path(__file__).parents[3] / "docs" / "disturbances.json").read_text())
]
PAIRS = list(zip(DISTURBANCES, ROWS, strict=False))


def test_the_rows_are_the_disturbances() -> None:
    assert [(row.name, row.fault, row.shown, row.lasts_s) for row in ROWS] == [
        (one.name, one.fault, one.shown, one.lasts_s) for one in DISTURBANCES
    ]


@pytest.mark.parametrize(("disturbance", "row"), PAIRS, ids=[one.name for one, _ in PAIRS])
def test_a_row_shows_what_the_page_says(disturbance: Disturbance, row: DisturbanceResult) -> None:
    assert row.date
    assert row.machine
    assert row.false_verdicts == []
    assert row.is_found_meanwhile or not disturbance.is_found_meanwhile
    assert [sign.words for sign in disturbance.sees if not sign.is_in(row)] == []
    one_of = [is_said(kind_of(line), row.said) for line in disturbance.says]
    assert any(one_of) or not one_of
    assert [line for line in disturbance.then_says if not is_said(kind_of(line), row.said)] == []
