"""The resources for watching a cluster, computed from the results of `make bench`: the values of docs/capacity.md."""

from __future__ import annotations

from typing import Any, NamedTuple

TRIGGERS_S = (1, 3, 5, 10)
DEFAULT_TRIGGER_S = 0.5  # of `txnwatch run`
PARTITIONS_OF_A_TRANSACTION = 3
LISTINGS_OF_A_LOOK = 2  # the end of each partition, and the last stable offset where the end has moved
STATE_TASKS, CEILING_TRIGGER_S = 16, 3  # the state has 16 buckets, so no more tasks evaluate
RECORDS_OF_A_TRANSACTION, RECORD_BYTES = 4, 200  # in the coordinators' log: Ongoing, partitions, Prepare*, Complete*
MARKERS_OF_A_TRANSACTION = PARTITIONS_OF_A_TRANSACTION  # one on each
Costs = dict[str, float]


class Load(NamedTuple):
    """The size and the load of one example cluster."""

    brokers: int
    partitions: int
    transactions_s: int
    bytes_s: float


LOADS = {
    "small": Load(3, 500, 500, 20e6),
    "medium": Load(12, 5_000, 10_000, 500e6),
    "large": Load(100, 50_000, 100_000, 10e9),
}


def costs_of(found: dict[str, Any]) -> Costs:
    """The cost of single operations, from the rows of docs/benchmarks.json.

    A cost in seconds is on one core of the machine that was measured. `scaling` is the work of two executors in a given
    time, divided by twice that of one. The memory in MB is of all processes on an idle cluster: without partitions, for
    each partition, and what the first reading of a million transactional ids adds.
    """

    def last(row: str, cost: str = "cpu_s") -> float:
        return float(found[row]["points"][-1][cost])

    def each(row: str, cost: str = "cpu_s") -> float:
        return last(row, cost) / last(row, "size")

    changing = found["buckets/10,000 others open, three partitions each"]["points"][-1]
    few, *_, many = found["idle/nothing is written"]["points"]
    peaks = {
        point["size"]: point["figures"]["peak PSS MB"] for point in found["million/start to first verdict"]["points"]
    }
    partition_mb = (many["figures"]["PSS MB"] - few["figures"]["PSS MB"]) / (many["size"] - few["size"])
    return {
        "batch_s": each("scan/one-record batches: fold to Arrow"),
        "byte_s": each("scan/16 KB batches: fold to Arrow") / 1e6,
        "tls_byte_s": each("scan/16 KB batches, TLS: fold to Arrow") / 1e6,
        "record_s": each("first_reading/exact fold"),
        "producer_s": (changing["cpu_s"] + changing["figures"]["CPU s to pack"]) / changing["size"],
        "idle_s": last("operators/nothing changes"),
        "idle_wall_s": last("operators/nothing changes", "wall_s"),
        "described_s": each("census/a round", "wall_s"),
        "listed_s": each("planning/listing"),
        "planned_s": each("planning/every partition has grown"),
        "scaling": 1 / (2 * last("executors/2 executors", "ratio")),
        "idle_mb": few["figures"]["PSS MB"] - partition_mb * few["size"],
        "partition_mb": partition_mb,
        "ids_mb": peaks[1_000_000] - min(peaks.values()),
    }


def shown_costs(costs: Costs) -> dict[str, str]:
    """The costs that are times, as the page has them; of bytes the cost of a megabyte."""
    of_bytes = {f"mega{name}": cost * 1e6 for name, cost in costs.items() if name.endswith("byte_s")}
    return {name: _time(cost) for name, cost in {**costs, **of_bytes}.items() if name.endswith("_s")}


def needs(load: Load, costs: Costs) -> dict[str, float | str]:
    """The resources that a watcher of this cluster needs: cores, if the name has no unit."""
    markers = load.transactions_s * MARKERS_OF_A_TRANSACTION * costs["batch_s"]
    reading, over_tls = (load.bytes_s * costs[of_byte] + markers for of_byte in ("byte_s", "tls_byte_s"))
    records = load.transactions_s * RECORDS_OF_A_TRANSACTION * costs["record_s"]
    judging = load.transactions_s * costs["producer_s"]
    log_bytes_s = load.transactions_s * RECORDS_OF_A_TRANSACTION * RECORD_BYTES
    serial_s, looks_s = (serial_of(load.partitions, costs, is_scanned=is_scanned) for is_scanned in (True, False))
    work = records + judging
    return {
        **load._asdict(),
        "bytes": f"{load.bytes_s / 1e9:,.0f} GB" if load.bytes_s >= 1e9 else f"{load.bytes_s / 1e6:,.0f} MB",
        "network_gbit_s": (load.bytes_s + log_bytes_s) * 8 / 1e9,
        "log_gbit_s": log_bytes_s * 8 / 1e9,
        "zones_gb_day": (load.bytes_s + log_bytes_s) * 2 / 3 * 86_400 / 1e9,
        "serial_s": serial_s,
        "looks_s": looks_s,
        "reading": reading,
        "reading_over_tls": over_tls,
        "records": records,
        "judging": judging,
        **{f"scan_{second}": cores(reading + work, serial_s, second, costs) for second in TRIGGERS_S},
        **{f"tls_{second}": cores(over_tls + work, serial_s, second, costs) for second in TRIGGERS_S},
        **{f"looks_{second}": cores(work, looks_s, second, costs) for second in TRIGGERS_S},
        "most_transactions_s": _most_transactions_s(serial_s, costs),
        "memory_gb": (costs["idle_mb"] + load.partitions * costs["partition_mb"] + costs["ids_mb"]) / 1000,
        "round_s": load.partitions * costs["described_s"],
    }


def serial_of(partitions: int, costs: Costs, *, is_scanned: bool) -> float:
    """The time of a micro-batch in which only the driver works: it lists, and plans what is scanned."""
    scan_s, look_s = costs["listed_s"] + costs["planned_s"], costs["listed_s"] * LISTINGS_OF_A_LOOK
    return partitions * (scan_s if is_scanned else look_s) + costs["idle_wall_s"]


def checked(found: dict[str, Any], costs: Costs) -> dict[str, dict[str, float]]:
    """Whole watches that were measured, and the cores that the same formula gives for what they watched."""
    return {
        f"{way}_{point['size']}": _checked(way, point["size"], point["figures"], costs)
        for way, row in {"scan": "partitions/scanned, busy", "looks": "partitions/by census, busy"}.items()
        for point in found[row]["points"]
    }


def _checked(way: str, partitions: int, seen: dict[str, float], costs: Costs) -> dict[str, float]:
    """One of them; evaluation takes as much longer as a transaction has more partitions than that of the benchmark."""
    of_each = seen["batches/s"] / seen["transactions/s"] / PARTITIONS_OF_A_TRANSACTION
    work = seen["coordinator records/s"] * costs["record_s"] + seen["transactions/s"] * costs["producer_s"] * of_each
    reading = (seen["batches/s"] + seen["markers/s"]) * costs["batch_s"]
    work += reading if way == "scan" else 0.0
    serial_s = serial_of(partitions, costs, is_scanned=way == "scan")
    computed = float(cores(work, serial_s, DEFAULT_TRIGGER_S, costs))
    return {
        "partitions": partitions,
        "transactions_s": seen["transactions/s"],
        "measured": seen["cores"],
        "computed": computed,
        "error": computed / seen["cores"] - 1,
    }


def cores(work: float, serial_s: float, trigger_s: float, costs: Costs) -> str:
    """The cores for a micro-batch every `trigger_s`: W / (1 - S/t), because nothing is read while the driver plans.

    Args:
        work: the parallel work of a second, in seconds on one core.
        serial_s: the time of a micro-batch in which only the driver works.
        trigger_s: the trigger.
        costs: the costs of single operations.
    """
    share = 1 - serial_s / trigger_s
    if share <= 0:
        return f"not feasible: the driver alone takes {serial_s:,.1f} s"
    parallel = work + loss_of(work, costs)
    found = max(parallel / share, parallel + serial_s / trigger_s)  # below one core, the driver's work counts
    return f"{found:,.1f}" if found >= 1 else f"{found:,.2f}"


def _most_transactions_s(serial_s: float, costs: Costs) -> str:
    share = 1 - serial_s / CEILING_TRIGGER_S
    return f"{STATE_TASKS / costs['producer_s'] * share:,.0f}" if share > 0 else "none"


def loss_of(work: float, costs: Costs) -> float:
    """The cores that parallel work needs in addition, because two executors do less than twice the work of one."""
    return work / costs["scaling"] - work if work > 1 else 0.0


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-2 else f"{seconds * 1e3:,.0f} ms"
