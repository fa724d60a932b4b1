"""docs/spark-source.md: the data source `kafka-transactions` for the Spark programs of users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from field_meanings import meaning_of, structs_of

from txnwatch.state.model.facts import Fact
from txnwatch.streaming.source.fact_rows import FACTS
from txnwatch.streaming.source.history_rows import HISTORY, FinishedTransaction
from txnwatch.streaming.source.options import KNOWN, SourceOptions, parse_options
from txnwatch.streaming.source.row_format import ddl_of, kind_of

ABOUT = """\
The package has a PySpark data source, `kafka-transactions`, that you can use in your own Spark programs, without
`txnwatch run`. It reads the same logs as `txnwatch run` and returns rows. The rows have what Spark's own Kafka source
does not show: producer ids, epochs, transactional ids, and the markers that end transactions. They do not have the
content of records: the source never decompresses or parses the records of a user's topic.

You need PySpark 4.3, and `pip install txnwatch` in the Python environment of the driver and of every executor. The
user needs the [rights of `txnwatch run`](../README.md#on-your-cluster), except those on the events topic.

Register the source once per Spark session. A test runs the programs of this page against a real Kafka.

## All finished transactions of a topic

A batch query (`spark.read`) with the option `episodes` returns one row per transaction and partition, for each
transaction that has ended.

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
ended = history.filter("kind = 'finished_transaction'").select(
    "finished_transaction.partition", "finished_transaction.episode.*"
)
ended.show()
```

A batch query fails if no broker answers. A row of kind `partition_notice` names a range that the query could not read,
and the reason. Check these rows before you use the result.

## Open transactions, continuously

A streaming query (`spark.readStream`) returns facts. A fact describes the content of one read range: the offsets of one
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
open_now = facts.filter("producer_seen.open_offset IS NOT NULL").select(
    "producer_seen.partition", "producer_seen.producer_id", "producer_seen.epoch", "producer_seen.open_offset"
)
query = open_now.writeStream.format("memory").queryName("open_now").start()
```

A fact has no verdict. `txnwatch run` adds the state and the proof: see [the data flow](../ARCHITECTURE.md).

## Options

Option names are not case-sensitive. Give either `subscribe` or `subscribePattern`. Every other option whose name begins
with `kafka.` is a setting of Kafka's Java client, for example `kafka.security.protocol` or `kafka.sasl.jaas.config`. An
unknown option is an error.

| option | default | meaning |
|---|---|---|
"""
ROWS = """\
## Rows

The column `kind` names another column, for example `producer_seen`. The named column is a struct: `producer_seen.*`
selects its fields. All other columns except `bucket` are null. The fields are those of a class of txnwatch
(`state/model/facts.py`), so they can change in a later version. Times are in epoch milliseconds. *Our clock* is the
clock of the driver. Only a row of a fact has the column `bucket`.

| kind | meaning |
|---|---|
"""
COLUMNS = """\
## Fields

A *partition* is a struct of a topic and a number.

| field | meaning | type |
|---|---|---|
"""
INNER = """\
## Structs inside the fields

| field | meaning | in |
|---|---|---|
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
    "coordinatorView": "coordinator_access",
    "controlFile": "control_file",
    "nextBarrierFile": "next_barrier_file",
    "formerPositionsFile": "former_positions_file",
    "packed": "packed",
}


KINDS = {kind_of(of): of for of in (FinishedTransaction, *get_args(Fact))}


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
    lines += ["", ROWS + "\n".join(f"| `{kind}` | {_first_line(of)} |" for kind, of in KINDS.items())]
    fields = (
        f"| `{kind}.{name}` | {meaning_of(of, name)} | {ddl} |"
        for kind, of in KINDS.items()
        for name, ddl in _fields(kind)
    )
    inner = (
        f"| `{kind_of(of)}.{name}` | {meaning_of(of, name)} | {', '.join(places)} |"
        for of, places in structs_of(KINDS).items()
        for name in of.__annotations__
    )
    lines += ["", COLUMNS + "\n".join(fields), "", INNER + "\n".join(inner), "", CLASS]
    return "\n".join(lines)


def _first_line(of: type) -> str:
    return " ".join((of.__doc__ or "").split("\n\n")[0].split())


def _fields(kind: str) -> Iterator[tuple[str, str]]:
    rows = HISTORY if kind in HISTORY.schema.names else FACTS
    for field in rows.schema.field(kind).type:
        yield field.name, ddl_of(field.type)


def _option(name: str, field: str | None, defaults: SourceOptions) -> str:
    if field is None:
        return f"| `{name}` | | {KNOWN[name.lower()]} |"
    value = getattr(defaults, field)
    if value is not None and field.endswith("_s"):
        value = round(value * 1000)
    shown = "" if value is None else f"`{str(value).lower()}`"
    return f"| `{name}` | {shown} | {KNOWN[name.lower()]} |"
