"""The text of the generated pages around their tables."""

from __future__ import annotations

ABORT_ABOUT = """\
`txnwatch run --auto-abort on` ends hanging transactions automatically: it writes the missing marker and reads the
partition again to verify the result. `--auto-abort dry-run` makes the same decisions, publishes them, and writes
nothing. The default is `off`. [`txnwatch abort`](#txnwatch-abort) ends a single transaction.

## What is aborted

Only a transaction that is proven to hang is aborted, and never one that a coordinator still owns. The decision depends
on the `expected_outcome`: how the transaction would have ended.

| `expected_outcome` | meaning | `--auto-abort on` | `txnwatch abort` |
|---|---|---|---|
| `abort` | the transaction was aborted | ABORT marker | ABORT marker |
| `none` | no transaction ever owned the data | ABORT marker | ABORT marker |
| `commit` | the commit was acknowledged to the client | refused | `--result commit`: COMMIT marker; otherwise refused |
| `unknown` | the commit may have been acknowledged | refused | ABORT marker: the operator confirms the possible loss |

## Before you switch it on

1. Grant the rights of the following table.
2. Run with `--auto-abort dry-run`, and read the decisions in the events (`action.decision`).
3. Set the limits: `--abort-topics`, `--abort-deny-topics`, `--abort-transactional-id-prefixes`,
   `--abort-deny-transactional-id-prefixes`, `--abort-budget-per-hour` and `--abort-breaker-incidents`.
4. Run all instances of a cluster in the same mode: an instance in dry-run can hold the lease too.

| right | on | without it |
|---|---|---|
| ALTER (before Kafka 3.8: CLUSTER_ACTION) | the cluster | every abort is refused (`not_authorized`) |
| READ | the topics | the marker that closed a transaction cannot be read: the result is `unknown` |
| READ | the events topic, the group `txnwatch-abort-<cluster id>` | the instance never holds the lease |

## The steps of an abort

The incident is published first. `--abort-after-ms` (default: five minutes) after this process has proven the hang, it
does the following:

1. **Read.** It repeats the fresh read that confirmed the incident (partition, coordinator, partition). It also reads
   the start of the open data in the partition's log once more: this must give the same outcome.
2. **Decide.** It checks the [refusals](#refusals). The first one that applies counts.
3. **Announce.** It publishes an event `updated` with `action.decision` = `abort`, and continues only after the event is
   delivered.
4. **Check the lease.** It asks the group's coordinator whether it still holds the [lease](#several-instances). It stops
   if the read of step 1 is older than five seconds.
5. **Write.** It writes one ABORT marker. The producer epoch and the coordinator epoch of the marker come from the
   partition's leader.
6. **Verify.** It reads the partition again, whatever the broker has answered, and finds the marker that closed the
   transaction: another writer may have been faster. It publishes the result in `action.result`.

| `action.result` | meaning |
|---|---|
| `verified` | a marker of the kind that was written closed the transaction |
| `still_open` | the transaction is still open |
| `failed` | a marker of the other kind closed the transaction (`action.detail` has its offset), or none was written |
| `unknown` | the partition, or the marker that closed the transaction, could not be read |

The circuit breaker opens for `--abort-breaker-cooldown-ms`, and nothing is aborted in that time:

- if a marker was sent and the result is not `verified`;
- if the broker refuses a marker because a right is missing;
- if the fresh read shows that a live transaction holds the partition.

## Why the topic cannot cause an abort

The events topic and Redis are never a source of a decision, because other users may be able to write to them. A process
acts only on what it has read from the brokers itself. A forged event can prevent aborts, because the hourly budget also
counts the markers that events announce. It cannot cause one.

## After a restart

- `--abort-after-ms` starts again, because it counts from the time when this process has proven the hang.
- The outcomes, and the markers of the last hour, are kept in `txnwatch-evidence.jsonl` in the checkpoint directory. If
  the checkpoint is not a local directory, a restart loses the outcomes that the coordinator no longer shows.
- If a process ends between the steps 3 and 6, the announced abort has no result. After its restart it reads the log and
  publishes the result. If the incident ends before that, its last event has the result: `verified` if such a marker
  ended it, otherwise `unknown`.

## Several instances

One instance acts: the one that holds the lease. The lease is partition 0 of the events topic in the consumer group
`txnwatch-abort-<cluster id>`. Any client that can join the group can hold the lease and decide nothing. Then the other
instances log a warning: an instance without the lease warns if a transaction has no decision `--abort-after-ms` plus
five minutes after the instance has proven its hang.

## Refusals

A refusal is published as an event with `action.decision` = `refused`, once per incident and reason. The column *event*
shows which refusals are published; the others end by themselves.
"""

BY_HAND = """\
## txnwatch abort

`txnwatch abort --topic T --partition N --start-offset O` (or `--producer-id ID`) ends one transaction. It proves the
hang with two readings, one second apart. It then decides like the automatic abort, with these differences:

- It does not use the lists, the waiting time, the budget and the circuit breaker.
- It shows the possible loss and asks for confirmation. `--yes` skips the question.
- It does not refuse an unknown outcome.
- `--result commit` completes a transaction if the coordinator's log still proves its commit.
- `--lose-acknowledged-data` allows an ABORT marker although the commit is proven.

A producer epoch that may be used again is refused (`epoch_may_be_reused`). Fence the id first: restart its application,
or run `kafka-transactions.sh forceTerminateTransaction`. That tool also overwrites the timeout of the id, and creates
an id that does not exist. The epochs of the marker come from the partition's leader; there is no flag for them.

The exit code is 0 only for the result `verified` (with `--dry-run`: if a marker would be written).

If the events topic exists, the command publishes an incident of its own: `opened` with the decision, `updated` with the
result, and `resolved` once it has read that the transaction is closed. `resolution.how` is `committed` or `aborted`
according to the marker that closed it, or `no_longer_open` if that marker could not be read. The command does not
change the incident of a running watch, because only that watch continues its sequence. That incident ends when the
watch reads the marker.
"""

METRICS_ABOUT = """\
`txnwatch run --metrics-port 9464` serves the metrics over HTTP, on the address `--metrics-host`:

| path | answer |
|---|---|
| `/metrics` | the metrics for Prometheus |
| `/-/healthy` | 200 as long as the process answers |
| `/-/ready` | 200 if a barrier was judged within the last 15 s, else 503 |

Made for these metrics:

- alert rules: [`deploy/prometheus/rules.yaml`](../deploy/prometheus/rules.yaml). [The runbook](runbook.md) has a
  section for each alert.
- a dashboard: [`deploy/grafana/txnwatch.json`](../deploy/grafana/txnwatch.json). The picture of it in the README is not
  a screenshot of Grafana: `scripts/dashboard_picture.py` draws it with matplotlib, from the panels, their queries, and
  the values that a Prometheus recorded in a run with real faults.

How to read the metrics:

- **Identities.** No label is a transactional id or a producer id, because their number has no limit. The incident
  events have both.
- **Partitions.** Series with the labels `topic` and `partition` exist only for partitions that are pinned now. Each of
  the 16 state buckets reports its 128 oldest transactions at most.
- **Ages** are computed at the scrape, so they grow between micro-batches.
- **Unknown values** are absent, not zero.
- **Counters and histograms** count since the start of the process. A micro-batch that Spark repeats is counted once per
  process. A micro-batch that was running when the process ended is counted again by the next process, which starts from
  zero.
- **Lag** is in offsets and seconds. The number of bytes between two offsets is known only after they are read.
"""

COORDINATOR_ABOUT = """\
Kafka does not have these metrics yet. KAFKA-20407 (KIP-1344, under discussion) proposes the latency of appends to the
transaction state log, the latency of marker completion, and the number of transactions that wait for markers. The names
below are our own, based on the terms of the proposal. They are computed from the log alone, so they need no setting of
the brokers and cover every coordinator. They also show two things that a single broker cannot measure: a transaction
that began to end under one coordinator and ended under another, and the oldest transaction that has not ended.

- **Times** are those of the brokers' clocks. The timestamp of a record is the time of its append. The field
  `lastUpdate` in Complete* is the time when Prepare* was committed, before the first marker was sent.
- **A failover** is detected if the two records have different leader epochs of the log's partition. The duration of
  such a transaction is only in the completion and failover histograms, not in those of appends and markers.
- **Coverage.** Every transaction that ends while txnwatch reads is counted. Transactions that ended before its first
  start are not.
"""
