"""What `explain` says about an id that several clients use: never that it is idle while they do."""

from __future__ import annotations

import pytest

from txnwatch.cli.explain_contention import CONTENDED, with_contention
from txnwatch.cli.explain_names import NO_FINDING
from txnwatch.cli.explanation import OPEN, Explanation
from txnwatch.state.evidence.contention import Contention, SeriesOf

FIRST_MS = 1_700_000_000_000
SERIES = Contention(12, 11, FIRST_MS, FIRST_MS + 13_000, 0, 22, SeriesOf.TAKEOVERS)
SOON_MS, LATER_MS = SERIES.last_ms + 1_000, SERIES.last_ms + 3_600_000


@pytest.mark.parametrize(
    ("state", "now_ms", "told"),
    [
        ("idle", SOON_MS, CONTENDED),
        ("idle", LATER_MS, "idle"),
        (OPEN, SOON_MS, OPEN),
        ("unproven", SOON_MS, "unproven"),
    ],
)
def test_an_id_is_not_idle_while_two_clients_use_it(state: str, now_ms: int, told: str) -> None:
    found = with_contention(Explanation("app", state, text=("app: Empty.", "Producer id 1.")), SERIES, now_ms)
    assert found.state == told
    assert found.text[0] == "app: Empty."
    use = "use" if now_ms == SOON_MS else "used"
    assert found.text[1].startswith(
        f"Two clients {use} this id, or one that starts again and again: 12 InitProducerIds in 13.0s, from "
    )
    assert "(epochs 0 to 22), and 11 transactions were aborted, each for the InitProducerId that" in found.text[1]
    assert found.text[-1] == "Producer id 1."
    assert CONTENDED not in NO_FINDING


def test_what_the_log_does_not_prove_is_not_said() -> None:
    series = SERIES._replace(of=SeriesOf.EITHER)
    found = with_contention(Explanation("app", OPEN, text=("app: Ongoing.",)), series, SOON_MS)
    assert "each right before the next InitProducerId, for it or by the client itself" in found.text[1]


def test_a_client_that_aborts_by_itself_is_not_told_to_be_two() -> None:
    found = with_contention(
        Explanation("app", "idle", text=("app: Empty.",)), SERIES._replace(of=SeriesOf.OWN), SOON_MS
    )
    text = " ".join(found.text)
    assert "each by the client itself, right before the next InitProducerId" in text
    assert "Two clients" not in text
    assert (found.state, "Look for the error in the log of the client" in text) == (CONTENDED, True)


def test_an_id_without_a_series_is_told_as_before() -> None:
    explained = Explanation("app", "idle", text=("app: Empty.",))
    assert with_contention(explained, None, SOON_MS) is explained
