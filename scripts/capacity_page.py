"""docs/capacity.md: the resources that a watch of a large cluster needs, computed from the results of `make bench`."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmark_page import table_line

BATCH_S = 1.0
RECORDS_OF_A_TRANSACTION, RECORD_BYTES = 4, 200  # in the coordinators' log: Ongoing, partitions, Prepare*, Complete*
MARKERS_OF_A_TRANSACTION = 3


class Load(NamedTuple):
    """The size and the load of one example cluster."""

    name: str
    brokers: int
    partitions: int
    transactions_s: int
    bytes_s: float
    batch_bytes: int


class Costs(NamedTuple):
    """The cost of single operations, in seconds on one core of the machine that was measured.

    Attributes:
        batch_s: CPU time of one record batch, its header decoded and folded.
        byte_s: CPU time of one received byte.
        record_s: CPU time of one record of the coordinators' log.
        producer_s: CPU time of one producer that changed in a micro-batch, packed and judged.
        idle_s: CPU time of a micro-batch of 100 changing producers in Spark, the smallest that was measured.
        described_s: wall time of one partition in a round of the census.
    """

    batch_s: float
    byte_s: float
    record_s: float
    producer_s: float
    idle_s: float
    described_s: float


LOADS = (
    Load("small", 3, 500, 500, 20e6, 16_000),
    Load("middle", 12, 5_000, 10_000, 500e6, 16_000),
    Load("large", 100, 50_000, 100_000, 10e9, 16_000),
)
ABOUT = """
A core is one of the machine that docs/benchmarks.md was measured on. Every figure below is computed from a row of that
page. A transaction is taken to write three data batches on three partitions, three markers, and four records of 200
bytes to the coordinators' log. Every producer that changes is taken to change once in a micro-batch.
""".strip()
NEEDED = frozenset(
    {
        "scan/1 MB batches: fold to Arrow",
        "scan/one-record batches: fold to Arrow",
        "first_reading/exact fold",
        "buckets/10,000 others open",
        "census/a round",
        "operators/packed, 16 buckets, judged",
    }
)
MISSING = "This page is computed from docs/benchmarks.json. `make bench` has yet to measure these rows:"
READ_SO = """
**Read it so.** What is scanned costs the network first: every byte that is written is read once more. Where that is too
much, scan the topics of which seconds matter (`--topics`), and leave the others to the census (`--census-topics`): it
costs a few requests a round whatever is written, and finds a hang there within two rounds. `--max-bytes-per-second`
keeps what is scanned within a limit; a partition that falls behind is judged by census until it has caught up.

The state is hashed to 16 buckets, and a bucket is one task: `--state-partitions` says how many tasks judge side by
side, up to 16. Fetching and folding is spread over `--input-partitions` tasks. More executors help as long as there are
tasks for them; docs/benchmarks.md has the slope from one to two.
""".strip()


def capacity_page(found: dict[str, Any], generated: str) -> str:
    """The page; if rows are missing, the list of the benchmarks that are not measured yet."""
    missing = sorted(NEEDED - found.keys())
    if missing:
        return "\n".join(["# Capacity", "", generated, MISSING, "", *(f"- {name}" for name in missing), ""])
    costs = costs_of(found)
    lines = ["# Capacity", "", generated, ABOUT, "", "## What one thing costs", ""]
    lines += ["| | CPU time |", "|---|---:|"]
    lines += [f"| {what} | {_time(spent)} |" for what, spent in _told(costs)]
    lines += [
        "",
        "## What a cluster needs",
        "",
        table_line(["", *(load.name for load in LOADS)]),
        "|---|---:|---:|---:|",
    ]
    columns = [needs(load, costs) for load in LOADS]
    lines += [table_line([name, *(column[name] for column in columns)]) for name in columns[0]]
    return "\n".join([*lines, "", READ_SO, ""])


def costs_of(found: dict[str, Any]) -> Costs:
    """Computes the costs from the rows of docs/benchmarks.json."""
    large, small = (_last(found, f"scan/{shape}: fold to Arrow") for shape in ("1 MB batches", "one-record batches"))
    ids = _last(found, "first_reading/exact fold")
    changing, census = _last(found, "buckets/10,000 others open"), _last(found, "census/a round")
    at_rest = found["operators/packed, 16 buckets, judged"]["points"][0]
    return Costs(
        batch_s=small["cpu_s"] / small["size"],
        byte_s=large["cpu_s"] / (large["size"] * 1e6),
        record_s=ids["cpu_s"] / ids["size"],
        producer_s=(changing["cpu_s"] + changing["figures"]["CPU s to pack"]) / changing["size"],
        idle_s=at_rest["cpu_s"],
        described_s=census["wall_s"] / census["size"],
    )


def needs(load: Load, costs: Costs) -> dict[str, str]:
    """The resources that a watch of this cluster needs, as the rows of the table."""
    batches_s = load.bytes_s / load.batch_bytes + load.transactions_s * MARKERS_OF_A_TRANSACTION
    reading = batches_s * costs.batch_s + load.bytes_s * costs.byte_s
    records = load.transactions_s * RECORDS_OF_A_TRANSACTION * costs.record_s
    judging = load.transactions_s * costs.producer_s
    log_bytes_s = load.transactions_s * RECORDS_OF_A_TRANSACTION * RECORD_BYTES
    every_s = max(5.0, load.partitions * costs.described_s * 10)
    return {
        "brokers": f"{load.brokers:,}",
        "partitions": f"{load.partitions:,}",
        "transactions a second": f"{load.transactions_s:,}",
        "bytes a second, in batches of 16 KB": _bytes(load.bytes_s),
        "network to scan everything": f"{(load.bytes_s + log_bytes_s) * 8 / 1e9:,.1f} Gbit/s",
        "network for the coordinators' log alone": f"{log_bytes_s * 8 / 1e9:,.2f} Gbit/s",
        "cores: data, fetched and folded": f"{reading:,.1f}",
        "cores: the coordinators' log, decoded": f"{records:,.1f}",
        "cores: judged": f"{judging:,.1f}",
        "cores: Spark's own, at one micro-batch a second": f"{costs.idle_s / BATCH_S:,.1f}",
        "cores in all": f"{reading + records + judging + costs.idle_s / BATCH_S:,.1f}",
        "cores in all, data by census alone": f"{records + judging + costs.idle_s / BATCH_S + 0.1:,.1f}",
        "a round of the census of all partitions": f"{load.partitions * costs.described_s:,.2f} s",
        "`--census-interval-ms` for a tenth of one core": f"{every_s * 1000:,.0f}",
    }


def _told(costs: Costs) -> list[tuple[str, float]]:
    return [
        ("one record batch, walked and folded (one-record batches)", costs.batch_s),
        ("one megabyte received, walked and folded (1 MB batches)", costs.byte_s * 1e6),
        ("one record of the coordinators' log, decoded (exact fold)", costs.record_s),
        ("one producer that changed, packed and judged", costs.producer_s),
        ("a micro-batch of 100 changing producers in Spark, all processes", costs.idle_s),
        ("one partition in a round of the census (wall time)", costs.described_s),
    ]


def _last(found: dict[str, Any], key: str) -> dict[str, Any]:
    point: dict[str, Any] = found[key]["points"][-1]
    return point


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.0f} ms"


def _bytes(size: float) -> str:
    return f"{size / 1e9:,.0f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"
