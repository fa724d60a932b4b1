"""doctor on a real broker, with a clock of this machine that is wrong; also on a cluster where nobody writes."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from support.raw_producer import RawProducer
from support.topics import unique
from txnwatch.cli.main import main
from txnwatch.streaming.checks import checkup
from txnwatch.streaming.checks.clock_bounds import first_look, second_look
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

TEN_MINUTES_MS = 600_000
AGREES_MS = 2_000


@pytest.mark.parametrize(
    ("ahead_ms", "says"),
    [(TEN_MINUTES_MS, "behind the clock of this machine"), (-TEN_MINUTES_MS, "ahead of the clock of this machine")],
)
def test_a_clock_of_this_machine_that_is_wrong_by_ten_minutes_is_a_warning(
    kafka: EmbeddedKafka,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ahead_ms: int,
    says: str,
) -> None:
    for look in (first_look, second_look):
        monkeypatch.setattr(checkup, look.__name__, partial(look, now_ms=lambda: wall_clock_ms() + ahead_ms))

    def asked(*flags: str) -> str:
        main(["doctor", "--bootstrap-server", kafka.bootstrap_servers, *flags])
        return capsys.readouterr().out

    rows: list[Any] = [row for row in json.loads(asked("--format", "json"))["rows"] if row["check"] == "clock"]
    assert [row["status"] for row in rows] == ["warning"]
    assert says in rows[0]["detail"]
    assert "10m0" in rows[0]["detail"] or "9m5" in rows[0]["detail"]
    assert "set the clock" in rows[0]["fix"]
    assert says in " ".join(asked().split())


def test_the_clocks_of_one_machine_agree_by_both_ways(cluster: Cluster) -> None:
    cluster.refresh()
    RawProducer(cluster, unique("before")).init()
    looked = first_look(cluster)
    RawProducer(cluster, unique("app")).init()
    seen = second_look(cluster, looked)
    (by_stamps,) = seen.brokers.values()
    assert seen.controller is not None
    for clock in (by_stamps, seen.controller[1]):
        assert clock.highest_ms is not None
        assert -AGREES_MS < clock.lowest_ms <= clock.highest_ms < AGREES_MS
