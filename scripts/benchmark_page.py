"""docs/benchmarks.md: the results of the last `make bench` (docs/benchmarks.json)."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from statistics import linear_regression
from typing import Any

from page_tables import table_line
from scan_summary import scan_summary

ABOUT = """
Compare the ratios: both sides were measured in one run on one machine. Seconds are valid for that machine only. CPU is
the time of all processes that took part, without the broker. A column *x NAME* is the ratio to NAME: 0.2 in the column
*x librdkafka* means a fifth of the time of librdkafka. The slope is the exponent of growth over the sizes: 0 is
constant, 1 is proportional. It is of the CPU seconds if every size has them, else of the seconds. PSS (proportional set
size) is memory in which a page that several processes share counts once. `make bench` measures everything, `make bench
ARGS="scan idle"` a part of it. Each run replaces its own rows. Machines with the same name can differ by a factor of
two: before you compare the seconds of rows from different days, measure `profile` again.
""".strip()
TITLES = {
    "scan": "Reading logs",
    "buckets": "The stateful operator alone",
    "profile": "Where the time of one micro-batch goes",
    "operators": "The stateful operator in Spark",
    "executors": "From one executor to two",
    "workers": "The coordinators' log on a Spark cluster",
    "latency": "From a hang to its event",
    "changing": "From a hang to its event, while all producers write",
    "census": "A round of the census",
    "many_hangs": "Many hangs at once",
    "idle": "An idle cluster",
    "quota": "Under a quota of 1 MB/s",
    "first_reading": "The first reading of the coordinators' log",
    "million": "A million transactional ids, the whole job",
    "partitions": "Many partitions",
    "planning": "The plan of a micro-batch",
    "steady": "Memory over time",
}
# What a benchmark measures, and the names of its rows and columns.
MEANS = {
    "scan": """
Several programs read the same topic from the same broker, one after the other; the figures are medians of three rounds.
*Bare socket* receives the segment files of the topic from a plain sender in another process, without a broker, and
drops them. *Bare Fetch* sends the same Fetch requests as the fold and drops the answers: the limit of the broker and of
the loopback interface. The broker can send faster than the plain sender; then only the bare Fetch is a limit. Over TLS
the bare Fetch decrypts the answers and then drops them. There is no bare socket over TLS: bytes that nobody encrypts
are no limit for a client that must decrypt, so the bare Fetch is the limit there. *Header walk* finds each batch with
the code of the fold. *Fold* is what txnwatch does with a range of a log: it computes from the batches what is open and
what has ended. Neither copies the records of large batches. *Fold to Arrow* also encodes the result for Spark.
*kafka-consumer-perf-test* is Kafka's own tool, measured once. Its seconds are those of its fetches; CPU seconds of it
also contain the start of its JVM. The rows with *Spark* compare a whole Spark query with Spark's own Kafka source.

Both rows of *librdkafka* have large fetches without a check of checksums, take up to 10,000 messages at once, and stop
at the last message. *Default queue* is librdkafka's default queue of 100,000 messages: it pauses for a second when the
queue is full. *Large queue* holds ten million messages, so it never pauses. Sizes in MB are before compression.
""",
    "buckets": """
One micro-batch of all 16 buckets of the state, in one process, without Spark. *Open* transactions are Ongoing and have
data on one of 16 partitions. A producer that *changes* has ended a transaction and begun the next one. *CPU s to pack*
is the time in which the source prepares the same facts. A *state call* is a call to Spark's state store. The ratio is
that of the CPU seconds.
""",
    "profile": """
The CPU time of one micro-batch in which 10,000 producers change, in the source and in the stateful operator, without
Spark itself, and the share of each part. *Apply* takes the facts into the state, *evaluate* computes the verdicts, and
*store state* compares, indexes and encodes what has changed. The shares are from Python's profiler, which makes parts
with many small calls look larger. The seconds are without the profiler. There is one size, because the shares matter
where a micro-batch is expensive; the section above has the CPU seconds of other sizes.
""",
    "operators": """
The same micro-batches in Spark, with facts from a synthetic source. *Row* and *pandas* are two interfaces of Spark for
state, and *a key per producer* or *16 buckets* is the key of the state: these three variants only apply the facts. The
variant *packed, 16 buckets, judged* is the one in use; it also evaluates the barrier ([decision
0002](decisions/0002-stateful-operator.md), [decision 0018](decisions/0018-a-batch-costs-what-changed.md)). The three
variants that are not in use have one size, because that is enough to compare them.
""",
    "executors": """
The same micro-batches on a standalone Spark cluster of one and of two workers. The master and the workers are processes
of their own, each worker has one executor with one core, and the traffic is encrypted. The ratio compares *source,
state and sink*. The driver needs a core too, so two executors on two cores gain less than on three. Rows with *state
partitions* are of a session in one JVM with two cores: a state partition is a task.
""",
    "workers": """
A batch query with txnwatch's source reads the whole `__transaction_state` on a standalone Spark cluster of one and of
two workers with one core each. All its rows go through Arrow to Spark. The figures are medians of three rounds. Broker,
master, workers and driver share the machine.
""",
    "latency": """
A hang is a write that arrives after the abort of its transaction, at a random moment. *Seconds* is the median time from
the broker's answer to the write until a consumer has the event. *Ready* is the time from the start of txnwatch until it
watches every partition. The demo's load has one size, because it is a fixed set of applications.
""",
    "changing": """
The same measurement, while another process writes batches of many other transactional producers to the same broker.
Each of these producers writes once a second. With a trigger of 500 ms about half of them change in a micro-batch, with
a trigger of a second about all of them: see *writes of each producer in a batch*. *Micro-batch s* is the median
duration of a micro-batch. A write is one more batch of a transaction that stays open.
""",
    "census": """
A round of the census, compared with `kafka-transactions.sh find-hanging --broker-id` for the same partitions. Nothing
is open.
""",
    "many_hangs": """
Many hangs begin within a second or two. The seconds are from the last write until a consumer has the event about the
last hang, and until the expected outcome of the last hang is known. *Reported* is the number of hangs that were
reported. The CPU seconds are those of all processes of txnwatch, until the last outcome is known.
""",
    "idle": """
txnwatch watches partitions in which nothing is written. CPU is counted for one minute, two minutes after the first
verdict was possible.
""",
    "quota": """
txnwatch and librdkafka read the same data at the same time, each under its own quota of 1 MB/s. *Gaps* are ranges that
txnwatch had to read again.
""",
    "first_reading": """
No broker: only the reading of the bytes is timed. *Exact fold* decodes every record. *Two passes* is the method in use
([decision 0019](decisions/0019-first-reading-in-two-passes.md)). *Plain walk* finds each batch and does nothing else.
The ratio is that of the CPU seconds. The exact fold has no third size, because it keeps every id in memory: ten million
would need ten times the memory of a million.
""",
    "million": """
From the start of txnwatch to its first verdict. Of the first million ids, one in a hundred has an open transaction, and
a hang exists before the start. *Peak* is the largest sum over all processes of txnwatch. `BENCH_MILLION_MAX=10000000
make bench ARGS=million` also measures ten million ids; it writes their records first, which takes minutes.
""",
    "partitions": """
A proxy in front of the broker counts requests and bytes. *The watch* is txnwatch. *Beside* is a consumer group of one
librdkafka consumer with default settings that reads the same partitions, for comparison. *To* is what the client
receives, *from* is what it sends. *Busy* is a thousand records of a hundred bytes per second. The row
*--max-bytes-per-second* has one size, because the limit is one of bytes and not of partitions.
""",
    "planning": """
This measures the work of the driver that grows with the number of partitions: it computes the next offset, sends it to
the JVM and back as JSON, makes the plans of the tasks, and pickles them. The row *listing* has the work before the
plan: the requests for the ends of all partitions are encoded and the answers decoded, without the network. The work is
serial: more executors do not make it shorter.
""",
    "steady": """
Four clients begin, write and commit transactions. Every 0.2 seconds each client takes a new transactional id. One
transaction in a hundred is left open until its timeout. The state removes idle ids after four minutes here, not after
an hour, so that there are many removals between two lines. The durations are of the micro-batches since the line above.
""",
}

# Sentences about columns that not every run of a benchmark has.
OF_COLUMNS = {
    "latency": {
        "idle micro-batch, x none open": "In the row *nothing else is written* a broker of its own has no hang while "
        "*idle* is measured. Idle is a minute, which contains one census of the scanned partitions. The hangs come "
        "after that: first among all open transactions, then among fewer.",
    },
    "changing": {
        "transactions a second": "Where *each transaction ends and the next one begins*, a transaction writes a batch, "
        "a marker and three records of a coordinator. *Transactions a second* is the rate that was reached: with ten "
        "thousand producers a round may take the broker longer than a second. The cores of the broker show how busy "
        "it is; it shares the machine with txnwatch.",
    },
    "partitions": {
        "transactions/s": "Each transaction writes one record on each of five partitions. A producer begins its next "
        "transaction when it has committed the one before. Idle and busy are measured for a minute each, which "
        "contains one census of the scanned partitions, and a round of the others every five seconds.",
    },
    "steady": {
        "JVM heap MB, committed": "*Committed* is the heap that the JVM has from the operating system. A part of it "
        "may be unused.",
        "JVM heap MB, live": "*Live* is the heap that is in use after a full collection, measured at the first and at "
        "the last line: a leak would let it grow.",
    },
}


def benchmarks_page(found: dict[str, Any], docs: Path, generated: str) -> str:
    """The page: rows grouped by benchmark, with a picture for a benchmark that was measured at several sizes."""
    lines = ["# Benchmarks", "", generated, ABOUT, ""]
    rows = sorted(found.values(), key=lambda row: (list(TITLES).index(row["bench"]), row["name"]))
    for bench, its in groupby(rows, key=lambda row: str(row["bench"])):
        lines += _benchmark(bench, list(its), docs)
    return "\n".join(lines)


def _benchmark(bench: str, rows: list[dict[str, Any]], docs: Path) -> list[str]:
    origins = [_origin(row) for row in rows]
    is_one_run = len(set(origins)) == 1
    lines = [f"## {TITLES[bench]}", "", *([origins[0], ""] if is_one_run else []), MEANS[bench].strip(), ""]
    shown = {name for row in rows for point in row["points"] for name in point["figures"]}
    lines += [line for name, text in OF_COLUMNS.get(bench, {}).items() if name in shown for line in (text, "")]
    if bench == "scan":
        lines += scan_summary(rows)
    for row, origin in zip(rows, origins, strict=True):
        lines += _row(row, "" if is_one_run else f" {origin}")
    for picture, sizes_are in {row["plot"]: row["sizes_are"] for row in rows}.items():
        if (docs / picture).exists():
            lines += [f"![{TITLES[bench]}, by {sizes_are}]({picture})", ""]
    return lines


def _origin(row: dict[str, Any]) -> str:
    """How, when and where a row was measured."""
    command = row.get("command", f"make bench ARGS={row['bench']}")
    return f"`{command}`, {row['measured']}, {row['machine']}."


def _row(row: dict[str, Any], origin: str) -> list[str]:
    points = row["points"]
    names = sorted({name for point in points for name in point["figures"]})
    columns: list[tuple[str, list[float | None]]] = [
        ("seconds", [point["wall_s"] for point in points]),
        ("CPU seconds", [point["cpu_s"] for point in points]),
        (f"x {row['beside']}", [point["ratio"] for point in points]),
        *((name, [point["figures"].get(name) for point in points]) for name in names),
    ]
    shown = [(head, values) for head, values in columns if any(value is not None for value in values)]
    slope = f" Slope {row['slope']:.2f}." if row["slope"] is not None else ""
    heads = [row["sizes_are"], *(head for head, _ in shown)]
    lines = [f"**{row['name']}.**{slope}{_growth(row)}{origin}", ""]
    lines += [table_line(heads), table_line(["---:"] * len(heads))]
    for number, point in enumerate(points):
        lines.append(table_line([f"{point['size']:,.0f}", *(_figure(values[number]) for _, values in shown)]))
    return [*lines, ""]


def _growth(row: dict[str, Any]) -> str:
    """How fast memory grew, if the sizes are minutes: by least squares over all lines."""
    if row["sizes_are"] != "minutes" or len(row["points"]) < 2:
        return ""
    names = [name for name in row["points"][0]["figures"] if all(name in point["figures"] for point in row["points"])]
    hours = [point["size"] / 60 for point in row["points"]]
    grown = [
        f"{name} {linear_regression(hours, [point['figures'][name] for point in row['points']]).slope:+.0f}"
        for name in names
        if "MB" in name
    ]
    return f" Growth an hour, by least squares over all lines: {', '.join(grown)}." if grown else ""


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
