"""The resources for watching a cluster, computed from the results of `make bench`: the tables of docs/capacity.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tables import table

WANTED_TRIGGER_MS = 1_000
RECORDS_OF_A_TRANSACTION, RECORD_BYTES = 4, 200  # in the coordinators' log: Ongoing, partitions, Prepare*, Complete*
MARKERS_OF_A_TRANSACTION = 3  # one on each partition
THREE_PARTITIONS = "buckets/10,000 others open, three partitions each"
_CENSUS_INTERVAL = "the `--census-interval-ms` (at least 5,000)"


class Load(NamedTuple):
    """The size and the load of one example cluster."""

    name: str
    brokers: int
    partitions: int
    transactions_s: int
    bytes_s: float


class Costs(NamedTuple):
    """The cost of single operations, in seconds on one core of the machine that was measured.

    Attributes:
        batch_s: CPU time of one batch with one record, or of one marker.
        byte_s, tls_byte_s: CPU time of one received byte in batches of at most 16 KB, with the work for each batch.
        record_s: CPU time of one record of the coordinators' log.
        producer_s: CPU time of one producer that changed on three partitions in a micro-batch, packed and evaluated.
        idle_s: CPU time of a micro-batch in Spark in which nothing changes, with the most open transactions measured.
        idle_wall_s: the duration of that micro-batch.
        described_s: wall time of one partition in a round of the census.
        listed_s, planned_s: CPU time of one scanned partition in the listing and in the plan of a micro-batch; serial.
        scaling: the work of two executors in a given time, divided by twice that of one.
        idle_mb, partition_mb: memory of all processes on an idle cluster: without partitions, and for each of them.
        ids_mb: what the first reading of a million transactional ids adds to it.
    """

    batch_s: float
    byte_s: float
    tls_byte_s: float
    record_s: float
    producer_s: float
    idle_s: float
    idle_wall_s: float
    described_s: float
    listed_s: float
    planned_s: float
    scaling: float
    idle_mb: float
    partition_mb: float
    ids_mb: float


LOADS = (
    Load("small", 3, 500, 500, 20e6),
    Load("medium", 12, 5_000, 10_000, 500e6),
    Load("large", 100, 50_000, 100_000, 10e9),
)


def cost_table(found: dict[str, Any]) -> str:
    """The cost of single operations."""
    return _of(found, lambda costs: table({"": 0, "CPU time": lambda row: _time(row[1])}, _cost_rows(costs)))


def resource_table(found: dict[str, Any]) -> str:
    """The resources that each example cluster needs."""

    def made(costs: Costs) -> str:
        columns = {load.name: needs(load, costs) for load in LOADS}
        names = next(iter(columns.values()))
        return table({"": str, **{name: of.get for name, of in columns.items()}}, names)

    return _of(found, made)


def _of(found: dict[str, Any], made: Callable[[Costs], str]) -> str:
    """A table; if `make bench` has not measured a row that it needs, the name of that row."""
    try:
        return made(costs_of(found))
    except KeyError as exc:
        return f"This table is computed from docs/benchmarks.json, where `make bench` has not written: {exc.args[0]}"


def costs_of(found: dict[str, Any]) -> Costs:
    """Computes the costs from the rows of docs/benchmarks.json."""
    middle, secured, small = (
        _last(found, f"scan/{shape}: fold to Arrow")
        for shape in ("16 KB batches", "16 KB batches, TLS", "one-record batches")
    )
    ids = _last(found, "first_reading/exact fold")
    changing = _last(found, THREE_PARTITIONS)
    census = _last(found, "census/a round")
    planning, listing = (_last(found, f"planning/{row}") for row in ("every partition has grown", "listing"))
    at_rest, two = _last(found, "operators/nothing changes"), _last(found, "executors/2 executors")
    few, many = (found["idle/nothing is written"]["points"][place] for place in (0, -1))
    peaks = {
        point["size"]: point["figures"]["peak PSS MB"] for point in found["million/start to first verdict"]["points"]
    }
    partition_mb = (many["figures"]["PSS MB"] - few["figures"]["PSS MB"]) / (many["size"] - few["size"])
    return Costs(
        batch_s=small["cpu_s"] / small["size"],
        byte_s=middle["cpu_s"] / (middle["size"] * 1e6),
        tls_byte_s=secured["cpu_s"] / (secured["size"] * 1e6),
        record_s=ids["cpu_s"] / ids["size"],
        producer_s=(changing["cpu_s"] + changing["figures"]["CPU s to pack"]) / changing["size"],
        idle_s=at_rest["cpu_s"],
        idle_wall_s=at_rest["wall_s"],
        described_s=census["wall_s"] / census["size"],
        listed_s=listing["cpu_s"] / listing["size"],
        planned_s=planning["cpu_s"] / planning["size"],
        scaling=1 / (2 * two["ratio"]),
        idle_mb=few["figures"]["PSS MB"] - partition_mb * few["size"],
        partition_mb=partition_mb,
        ids_mb=peaks[1_000_000] - min(peaks.values()),
    )


def least_trigger_ms(load: Load, costs: Costs) -> int:
    """A lower bound: a micro-batch of this cluster in which nothing changes, rounded up to a tenth of a second."""
    serial_s = load.partitions * (costs.listed_s + costs.planned_s)
    return math.ceil((serial_s + costs.idle_wall_s) * 10) * 100


def needs(load: Load, costs: Costs) -> dict[str, str]:
    """The resources that a watcher of this cluster needs, as the rows of the table."""
    markers = load.transactions_s * MARKERS_OF_A_TRANSACTION * costs.batch_s
    reading, secured = (load.bytes_s * byte_s + markers for byte_s in (costs.byte_s, costs.tls_byte_s))
    records = load.transactions_s * RECORDS_OF_A_TRANSACTION * costs.record_s
    judging = load.transactions_s * costs.producer_s
    log_bytes_s = load.transactions_s * RECORDS_OF_A_TRANSACTION * RECORD_BYTES
    least_ms = least_trigger_ms(load, costs)
    trigger_s = max(WANTED_TRIGGER_MS, least_ms) / 1000
    listing, planning = (load.partitions * each_s / trigger_s for each_s in (costs.listed_s, costs.planned_s))
    serial = listing + planning
    spark = costs.idle_s / trigger_s
    by_census = records + judging
    scanned, over_tls, counted = (
        work + loss_of(work, costs) for work in (reading + by_census, secured + by_census, by_census)
    )
    memory_gb = (costs.idle_mb + load.partitions * costs.partition_mb + costs.ids_mb) / 1000
    every_s = max(5.0, load.partitions * costs.described_s * 10)
    return {
        "brokers": f"{load.brokers:,}",
        "partitions": f"{load.partitions:,}",
        "transactions per second": f"{load.transactions_s:,}",
        "bytes per second, in batches of at most 16 KB": _bytes(load.bytes_s),
        "network to scan everything": f"{(load.bytes_s + log_bytes_s) * 8 / 1e9:,.1f} Gbit/s",
        "network for the coordinators' log alone": f"{log_bytes_s * 8 / 1e9:,.2f} Gbit/s",
        "`--trigger-ms` to scan everything, at least": f"{least_ms:,}",
        "one micro-batch per second": _feasible(least_ms),
        "`--trigger-ms` of the lines below": f"{trigger_s * 1000:,.0f}",
        "cores: fetching and folding data": f"{reading:,.1f}",
        "cores: fetching and folding data over TLS": f"{secured:,.1f}",
        "cores: decoding the coordinators' log": f"{records:,.1f}",
        "cores: evaluation": f"{judging:,.1f}",
        "cores: loss of more than one executor, at least": f"{loss_of(reading + by_census, costs):,.1f}",
        "cores: listing, serial in the driver": f"{listing:,.2f}",
        "cores: planning, serial in the driver": f"{planning:,.2f}",
        "cores: Spark itself": f"{spark:,.1f}",
        "cores, total, at least": f"{scanned + serial + spark:,.2f}",
        "cores, total, over TLS, at least": f"{over_tls + serial + spark:,.2f}",
        "cores, total, if a census watches all data, at least": f"{counted + spark + 0.1:,.2f}",
        "memory (PSS) to scan everything, at least": f"{memory_gb:,.1f} GB",
        "a round of the census of all partitions": f"{load.partitions * costs.described_s:,.2f} s",
        f"{_CENSUS_INTERVAL} with which the census needs at most a tenth of one core": f"{every_s * 1000:,.0f}",
    }


def loss_of(work: float, costs: Costs) -> float:
    """The cores that parallel work needs in addition, because two executors do less than twice the work of one."""
    return work / costs.scaling - work if work > 1 else 0.0


def _feasible(least_ms: int) -> str:
    if least_ms < WANTED_TRIGGER_MS:
        return f"feasible if changes add less than {(WANTED_TRIGGER_MS - least_ms) / 1000:,.1f} s to it"
    return f"not feasible: it takes {least_ms / 1000:,.1f} s even if nothing changes"


def _cost_rows(costs: Costs) -> list[tuple[str, float]]:
    return [
        ("one batch with one record, or one marker: walk and fold", costs.batch_s),
        ("one received megabyte in batches of at most 16 KB: walk and fold", costs.byte_s * 1e6),
        ("the same over TLS", costs.tls_byte_s * 1e6),
        ("one record of the coordinators' log: decode every field", costs.record_s),
        ("one producer that changed on three partitions: write its new state and evaluate it", costs.producer_s),
        ("a micro-batch in which nothing changes, all processes", costs.idle_s),
        ("the duration of that micro-batch (wall time)", costs.idle_wall_s),
        ("one scanned partition in the listing of a micro-batch", costs.listed_s),
        ("one scanned partition in the plan of a micro-batch", costs.planned_s),
        ("one partition in a round of the census (wall time)", costs.described_s),
    ]


def _last(found: dict[str, Any], key: str) -> dict[str, Any]:
    point: dict[str, Any] = found[key]["points"][-1]
    return point


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-2 else f"{seconds * 1e3:,.0f} ms"


def _bytes(size: float) -> str:
    return f"{size / 1e9:,.0f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"
