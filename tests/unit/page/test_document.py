"""The document in Redis: what a watcher writes is read back, and anything else is refused without a crash."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.clusters_world import a_beat
from support.page_world import a_busy_cluster, an_open
from txnwatch.page import announced as document_module
from txnwatch.page.announced import decoded, document_of, encoded
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.findings import CensusOffsets
from txnwatch.state.model.values import Offset, TopicPartition

EU = "EU"


def a_document() -> Any:
    """The values of a valid document, as JSON has them."""
    world = a_busy_cluster()
    return json.loads(zlib.decompress(encoded(document_of(world.store, a_beat(EU), world.ends))))


def packed(values: Any) -> bytes:
    return zlib.compress(json.dumps(values).encode())


def test_it_is_read_back_as_it_was() -> None:
    world = a_busy_cluster()
    world.ends[TopicPartition("nobody", 7)] = Offset(9)
    world.by_census = {TopicPartition("audit", 0): (5_120, 5_200), TopicPartition("nobody", 8): (1, 9)}
    world.batch()
    found = document_of(world.store, a_beat(EU), world.ends)
    assert decoded(encoded(found), EU) == found
    assert found.by_census == (CensusOffsets(TopicPartition("audit", 0), Offset(5_120), Offset(5_200)),)
    assert found.transactions == world.store.seen.lists[0].transactions
    assert found.totals.open == 9_871
    assert TopicPartition("nobody", 7) not in dict(found.ends), "only what is open has to be drawn"


def test_4096_rows_have_room() -> None:
    world = a_busy_cluster()
    world.open = [
        an_open(number, f"checkout-{number}", 60, ("payments", number % 50, number)) for number in range(4_096)
    ]
    world.batch()
    value = encoded(document_of(world.store, a_beat(EU), world.ends))
    assert len(value) < 400_000
    assert len(decoded(value, EU).transactions) == 4_096


def test_a_field_of_a_later_version_is_left_out() -> None:
    values = a_document()
    assert decoded(packed({**values, "later": 1}), EU).heartbeat.cluster_id == EU


HOSTILE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another cluster": (lambda v: v["heartbeat"].update(cluster_id="US"), "its own cluster"),
    "a heartbeat": (lambda v: v["heartbeat"].update(evaluated_ms=-1), "heartbeat has an invalid value"),
    "a view": (lambda v: v["heartbeat"].update(coordinator_view="all"), "heartbeat has an invalid value"),
    "a time": (lambda v: v["transactions"][0].__setitem__(3, 1 << 70), "transactions has an invalid value"),
    "half a character": (lambda v: v["transactions"][0].__setitem__(2, "\ud800"), "expected a page document"),
    "a long id": (lambda v: v["transactions"][0].__setitem__(1, "x" * 40_000), "transactions has an invalid value"),
    "a long state": (lambda v: v["transactions"][0].__setitem__(2, "x" * 65), "transactions has an invalid value"),
    "a topic": (lambda v: v["transactions"][0][5][0].__setitem__(0, ["<b>", 0]), "transactions has an invalid value"),
    "a partition": (lambda v: v["ends"][0].__setitem__(0, ["orders", -1]), "ends has an invalid value"),
    "an offset": (lambda v: v["blocked"][0].__setitem__(1, -5), "blocked has an invalid value"),
    "a listed offset": (lambda v: v["by_census"].append([["t", 0], -1, 5]), "by_census has an invalid value"),
    "an end below": (lambda v: v["by_census"].append([["t", 0], 5, 4]), "by_census has an invalid value"),
    "a large end": (lambda v: v["by_census"].append([["t", 0], 5, 1 << 63]), "by_census has an invalid value"),
    "a count": (lambda v: v["totals"].__setitem__(1, [["Ongoing", -1]]), "totals has an invalid value"),
    "many states": (lambda v: v["totals"].__setitem__(1, [["Ongoing", 1]] * 33), "totals has an invalid value"),
    "a duration": (lambda v: v.update(batch_ms=-1), "batch_ms has an invalid value"),
    "a latency": (lambda v: v.update(latency_p99_ms=1 << 64), "latency_p99_ms has an invalid value"),
    "text for a number": (lambda v: v.update(batch_ms="1"), "expected a page document"),
    "true for a number": (lambda v: v.update(batch_ms=True), "expected a page document"),
    "no heartbeat": (lambda v: v.pop("heartbeat"), "expected a page document"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_that_is_not_valid_is_refused(name: str) -> None:
    change, expected = HOSTILE[name]
    values = a_document()
    change(values)
    with pytest.raises(BadEventError, match=expected):
        decoded(packed(values), EU)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\0", b"not compressed", zlib.compress(b"{}"), zlib.compress(b"[1]"), zlib.compress(b'{"a":' * 9_999)),
        *(zlib.compress(b"null")[:-2], zlib.compress(b"null") + b"more"),
    ],
)
def test_what_is_not_a_document_is_refused(value: bytes) -> None:
    with pytest.raises(BadEventError):
        decoded(value, EU)


def test_a_small_value_that_becomes_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadEventError) as found:
        decoded(zlib.compress(b" " * (document_module.MOST_BYTES + 1)), EU)
    assert found.value.why is SkipReason.TOO_LARGE
    monkeypatch.setattr(document_module, "MOST_TRANSACTIONS", 3)
    with pytest.raises(BadEventError, match="transactions has an invalid value"):
        decoded(packed(a_document()), EU)


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_no_bytes_raise_another_error(value: bytes) -> None:
    for one in (value, zlib.compress(value)):
        with pytest.raises(BadEventError):
            decoded(one, EU)
