"""docs/spark-source.md: the data source `kafka-transactions` for Spark programs of others."""

from __future__ import annotations

from txnwatch.streaming.source import fact_rows
from txnwatch.streaming.source.options import KNOWN, SourceOptions, parse_options

ABOUT = """\
The package has a PySpark data source, `kafka-transactions`, that you can use in your own Spark programs, without
`txnwatch run`. It reads the same logs as `txnwatch run` and returns rows. The rows have what Spark's own Kafka source
does not show: producer ids, epochs, transactional ids, and the markers that end transactions. They do not have the
content of records: the source never decompresses or parses the records of a user's topic.

You need PySpark 4.3, and `pip install txnwatch` in the Python environment of the driver and of every executor. The
user needs the [rights of `txnwatch run`](../README.md#on-your-cluster), except those on the events topic.

Register the source once per Spark session. A test runs the programs of this page against a real Kafka.

## All finished transactions of a topic

A batch query (`spark.read`) with the option `episodes` returns one row for each transaction that has ended.

```python
from txnwatch.streaming.source.datasource import TransactionsDataSource

spark.dataSource.register(TransactionsDataSource)
history = (
    spark.read.format("kafka-transactions")
    .option("kafka.bootstrap.servers", "broker:9092")
    .option("subscribe", "payments")
    .option("startingOffsets", "earliest")
    .option("episodes", "true")
    .load()
)
ended = history.filter("kind = 'episode'").select(
    "partition", "producer_id", "txn_start_offset", "last_marker_offset", "last_marker_commit"
)
ended.show()
```

A batch query fails if no broker answers. A row of kind `notice` names a range that the query could not read, and the
reason. Check these rows before you use the result.

## Open transactions, continuously

A streaming query (`spark.readStream`) returns facts. A fact describes what one read range contains: the offsets of one
partition that one micro-batch reads. The source distributes facts to buckets, by producer id. It copies a fact about
all producers to every bucket. Here the option `buckets` is 1, so that each fact comes once.

```python
facts = (
    spark.readStream.format("kafka-transactions")
    .option("kafka.bootstrap.servers", "broker:9092")
    .option("subscribePattern", "payments.*")
    .option("buckets", "1")
    .load()
)
open_now = facts.filter("kind = 'producer' AND txn_start_offset IS NOT NULL").select(
    "topic", "partition", "producer_id", "producer_epoch", "txn_start_offset"
)
query = open_now.writeStream.format("memory").queryName("open_now").start()
```

A fact has no verdict. `txnwatch run` adds the state and the proof: see [the data flow](../ARCHITECTURE.md).

## Options

Option names are not case-sensitive. Give either `subscribe` or `subscribePattern`. Every other option whose name begins
with `kafka.` is a setting of Kafka's Java client, for example `kafka.security.protocol` or `kafka.sasl.jaas.config`. An
unknown option is an error. `controlFile`, `nextBarrierFile` and `packed` are for `txnwatch run` only.

| option | default | meaning |
|---|---|---|
"""
ROWS = """\
## Rows

The column `kind` determines which other columns have a value; all others are null. Times are in epoch milliseconds.

| kind | one row for each | most important columns |
|---|---|---|
"""
COLUMNS = """\
## Columns

| column | type |
|---|---|
"""
CLASS = """\
## Python class

GitHub does not show this part of the page; the site does (`make site`).

::: txnwatch.streaming.source.datasource.TransactionsDataSource
    options:
      members: [name, schema, streamReader, reader]
"""
# Spark programs write the names of options in camel case; the source compares them in lower case.
OPTIONS = {
    "kafka.bootstrap.servers": None,
    "subscribe": None,
    "subscribePattern": None,
    "startingOffsets": "starting_offsets",
    "endingOffsets": "ending_offsets",
    "episodes": "episodes",
    "maxOffsetsPerTrigger": "max_offsets_per_trigger",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
    "maxReadMsPerTrigger": "max_read_s",
    "maxBytesPerSecond": "max_bytes_per_second",
    "inputPartitions": "input_partitions",
    "buckets": "buckets",
    "censusPattern": "census_pattern",
    "censusIntervalMs": "census_interval_s",
    "healIntervalMs": "heal_interval_s",
    "foreignPattern": "foreign_pattern",
    "metadataRefreshMs": "metadata_refresh_s",
    "listTimeoutMs": "list_timeout_s",
    "readPatienceMs": "read_patience_s",
    "controlFile": "control_file",
    "nextBarrierFile": "next_barrier_file",
    "packed": "packed",
}
_EPISODE_COLUMNS = """\
`producer_id`, `producer_epoch`, `txn_start_offset`, `last_offset`, `last_marker_offset`, `last_marker_commit` \
(true: COMMIT, false: ABORT)"""
_PRODUCER_COLUMNS = """\
`range_start`, `range_end`, `producer_id`, `producer_epoch`, `txn_start_offset` (first offset of what is open at the \
end of the range; null if nothing is open), `first_marker_offset`, `last_marker_offset`"""
_TRANSACTION_COLUMNS = """\
`transactional_id`, `producer_id`, `transaction_state`, `transaction_timeout_ms`, `transaction_start_ms`, \
`participants`"""
_NOTICE_COLUMNS = """\
`range_start`, `range_end`, `detail` (JSON: `notice` is gap, lost, truncated, deleted, hidden or left, and `detail` \
has the reason)"""
_BARRIER_COLUMNS = """\
`listed_ms`, `detail` (JSON: the number, and the partitions about which the barrier proves nothing)"""
KINDS = (
    (fact_rows.EPISODE, "finished transaction on a partition (only with `episodes`)", _EPISODE_COLUMNS),
    (
        fact_rows.PRODUCER,
        "producer that wrote transactional data, or whose transaction a marker ended, in a read range of a partition",
        _PRODUCER_COLUMNS,
    ),
    (
        fact_rows.TRANSACTION,
        "producer id with a record in a read range of `__transaction_state`",
        _TRANSACTION_COLUMNS,
    ),
    (fact_rows.GONE, "transactional id that was removed from `__transaction_state`", "`transactional_id`"),
    (
        fact_rows.OPEN,
        "open transaction that a census shows",
        "`producer_id`, `producer_epoch`, `txn_start_offset`, `last_timestamp_ms`",
    ),
    (fact_rows.CENSUS, "census", "`detail` (JSON: the partitions that answered, and those that did not)"),
    (
        fact_rows.LAST_STABLE,
        "partition whose last stable offset is below the end that was read",
        "`range_end` (the last stable offset)",
    ),
    (fact_rows.BARRIER, "barrier, in each bucket", _BARRIER_COLUMNS),
    (
        fact_rows.LOG_READ,
        "task that reads `__transaction_state` beside the task that emits the barrier",
        "`detail` (JSON: offsets that compaction removed, and bounds of the brokers' clocks)",
    ),
    (fact_rows.NOTICE, "range that could not be read, or change of a whole partition", _NOTICE_COLUMNS),
    (
        fact_rows.THROTTLED,
        "reader that brokers throttled by a quota",
        "`detail` (JSON: milliseconds for each type of request)",
    ),
)


def source_page(generated: str) -> str:
    """The page.

    Raises:
        ValueError: an option is missing in OPTIONS.
    """
    if [name.lower() for name in OPTIONS if name.lower() not in KNOWN] or len(OPTIONS) != len(KNOWN):
        raise ValueError("expected OPTIONS with every option of the source")
    defaults = parse_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": "topic"})
    lines = ["# The Spark source", "", generated]
    lines.append(ABOUT + "\n".join(_option(name, field, defaults) for name, field in OPTIONS.items()))
    lines += ["", ROWS + "\n".join(f"| `{kind}` | {what} | {columns} |" for kind, what, columns in KINDS)]
    types = (column.split(" ") for column in fact_rows.DDL.split(", "))
    lines += ["", COLUMNS + "\n".join(f"| `{name}` | {kind} |" for name, kind in types), "", CLASS]
    return "\n".join(lines)


def _option(name: str, field: str | None, defaults: SourceOptions) -> str:
    if field is None:
        return f"| `{name}` | | {KNOWN[name.lower()]} |"
    value = getattr(defaults, field)
    if value is not None and field.endswith("_s"):
        value = round(value * 1000)
    shown = "" if value is None else f"`{str(value).lower()}`"
    return f"| `{name}` | {shown} | {KNOWN[name.lower()]} |"
