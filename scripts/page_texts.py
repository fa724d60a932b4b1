"""The text of the generated pages around their tables."""

from __future__ import annotations

ABORT_ABOUT = """\
`txnwatch run --auto-abort on` ends hanging transactions automatically: it writes the missing marker and reads the
partition again to verify the result. `--auto-abort dry-run` makes the same decisions and publishes them, but writes no
marker. The default is `off`. [`txnwatch abort`](#txnwatch-abort) ends a single transaction.

## What is aborted

txnwatch aborts a transaction only if it is proven to hang, and never if a coordinator still owns it. The decision
depends on the `expected_outcome`: how the transaction would have ended.

| `expected_outcome` | meaning | `--auto-abort on` | `txnwatch abort` |
|---|---|---|---|
| `abort` | the transaction was aborted | ABORT marker | ABORT marker |
| `none` | no transaction ever owned the data | ABORT marker | ABORT marker |
| `commit` | the commit was acknowledged to the client | refused | refused, except with [these flags](#txnwatch-abort) |
| `unknown` | the commit may have been acknowledged to the client | refused | ABORT marker, after a confirmation |

## Before you switch it on

1. Grant the rights in the table below.
2. Run with `--auto-abort dry-run`, and read the decisions in the events (`action.decision`).
3. Set the limits: `--abort-topics`, `--abort-deny-topics`, `--abort-transactional-id-prefixes`,
   `--abort-deny-transactional-id-prefixes`, `--abort-budget-per-hour` and `--abort-breaker-incidents`.
4. Run all instances of a cluster in the same mode. Only the instance with the [lease](#several-instances) acts, and an
   instance in dry-run can have the lease too.

| right | on | without it |
|---|---|---|
| ALTER (before Kafka 3.8: CLUSTER_ACTION) | the cluster | every abort is refused (`not_authorized`) |
| READ | the topics | no hang is proven on them, so nothing is aborted; if it is lost later, the result is `unknown` |
| READ | the events topic, the consumer group `txnwatch-abort-<cluster id>` | the instance never gets the lease |

## The steps of an abort

txnwatch publishes the incident first. An instance that has proven the hang itself, and has the
[lease](#several-instances), waits for `--abort-after-ms` (default: five minutes). Then it does the following:

1. **Read.** It repeats the fresh read that confirmed the incident: it asks the partition's leader, then the
   coordinator, then the leader again. It also reads the start of the open data in the partition's log again. This must
   give the same outcome.
2. **Decide.** It checks the reasons against an abort in the order of the [refusals](#refusals). If one applies, it
   writes no marker.
3. **Announce.** It publishes an `updated` event with `action.decision` = `abort`, and continues only after the event is
   delivered.
4. **Check the lease.** It asks the consumer group's coordinator whether it still has the [lease](#several-instances).
   If not, or if the read of step 1 is older than five seconds, it writes no marker now.
5. **Write.** It writes one ABORT marker. The producer epoch and the coordinator epoch of the marker come from the
   partition's leader.
6. **Verify.** It reads the partition again, whatever the broker has answered, and finds the marker that closed the
   transaction. This may be the marker of another writer that was faster. It publishes the result in `action.result`.

| `action.result` | meaning |
|---|---|
| `verified` | a marker of the kind that txnwatch wrote (ABORT or COMMIT) closed the transaction |
| `still_open` | a marker was sent, and the transaction is still open |
| `failed` | a marker of the other kind closed the transaction (`action.detail` has its offset), or no marker was sent |
| `unknown` | the partition, or the marker that closed the transaction, could not be read |

The circuit breaker stops all aborts for `--abort-breaker-cooldown-ms` in these cases:

- a marker was sent, and the result is not `verified`;
- the broker refuses a marker because a right is missing;
- the fresh read shows that a live transaction holds the partition.

## Why the topic cannot cause an abort

Other users may be able to write to the events topic and to Redis, so txnwatch never aborts because of what it reads
there. A process acts only on what it has read from the brokers itself. A forged event cannot cause an abort. It can
prevent aborts, because the hourly budget also counts the markers that events announce.

## After a restart

- The waiting time `--abort-after-ms` starts again, because it begins when this process has proven the hang.
- The file `txnwatch-evidence.jsonl` in the checkpoint directory keeps the outcomes, and the markers that were written
  within the last hour, also for another version of txnwatch. If the checkpoint is not a local directory, there is no
  such file after a restart, and the outcomes that the coordinator no longer shows are lost.
- If the process ends between steps 3 and 6, the result of the announced abort is not published yet. After its restart
  the process reads the log of the partition and publishes the result. If the incident ends before that, its last event
  has the result: `verified` if a marker of the announced kind ended the transaction, otherwise `unknown`.

## Several instances

Only one instance aborts: the one that has the lease. The lease is partition 0 of the events topic in the consumer group
`txnwatch-abort-<cluster id>`. Any client that can join the group can get the lease, so a client that is not txnwatch
could hold it and make no decision. So each of the other instances measures the time since it has proven a hang. If
there is no decision after `--abort-after-ms` plus five minutes, it logs a warning.

## Refusals

A refusal is published as an event with `action.decision` = `refused`, once per incident and reason. The column *event*
shows which refusals are published. The others are not published, because they end by themselves.
"""

DOUBTS_ABOUT = """\
## Why an outcome is unknown

If `expected_outcome` is `unknown`, `outcome_doubt` is a code of this table, and `outcome_detail` has the text with the
values of the case. `explain`, `find-hanging` and `abort` show the reason, too. [Decision
0012](decisions/0012-outcomes-depend-on-epochs.md) has the rule.
"""

BY_HAND = """\
## txnwatch abort

`txnwatch abort --topic T --partition N --start-offset O` (or `--producer-id ID`) ends one transaction. It proves the
hang with two readings, one second apart. Then it decides like the automatic abort, with these differences:

- It ignores the lists of topics and prefixes, the waiting time, the budget and the circuit breaker.
- It shows the possible loss and asks for confirmation. `--yes` skips the question.
- It does not refuse an unknown outcome.
- With `--result commit` it writes a COMMIT marker, if the coordinators' log still proves that the outcome is a commit.
- With `--lose-acknowledged-data` it writes an ABORT marker although the commit is proven.

The command refuses if a client may still use the producer epoch (`epoch_may_be_reused`). Fence the transactional id
first: restart its application, or run `kafka-transactions.sh forceTerminateTransaction`. This tool also overwrites the
timeout of the id. If the id does not exist, the tool creates it, so check the spelling. The epochs of the marker come
from the partition's leader; there is no flag for them.

The exit code is 0 only for the result `verified`. With `--dry-run` it is 0 if the command would write a marker.

If the events topic exists, the command publishes an incident of its own: `opened` with the decision, `updated` with the
result, and `resolved` once it has read that the transaction is closed. `resolution.how` is `committed` or `aborted`,
according to the marker that closed the transaction, or `no_longer_open` if that marker could not be read. A running
watcher may have an incident of its own about the same transaction. The command does not change that incident, because
only the watcher publishes further events about its own incidents. That incident ends when the watcher reads the marker.
"""

METRICS_ABOUT = """\
`txnwatch run --metrics-port 9464` serves the metrics over HTTP, on 127.0.0.1 or the address `--metrics-host`.
`--metrics-web-config-file` adds TLS and users ([how](hardening.md#the-metrics-port)).

| path | answer |
|---|---|
| `/metrics` | the metrics for Prometheus |
| `/-/healthy` | 200, always: it shows only that the process runs |
| `/-/ready` | 200 if a barrier was evaluated within the last 15 s, else 503, as `txnwatch_up` |

These files use the metrics:

- alert rules: [`deploy/prometheus/rules.yaml`](../deploy/prometheus/rules.yaml). [The runbook](runbook.md) has a
  section for each alert.
- a dashboard: [`deploy/grafana/txnwatch.json`](../deploy/grafana/txnwatch.json). The picture of the dashboard in the
  README is not a screenshot of Grafana: `scripts/dashboard_picture.py` draws the panels with matplotlib. The values are
  from a Prometheus that recorded a run with real faults.

How to read the metrics:

- **Identities.** No metric has a transactional id or a producer id as a label, because their number has no limit. The
  incident events have both.
- **Partitions.** Series with the labels `topic` and `partition` exist only while a transaction holds the partition's
  last stable offset. The state of txnwatch is divided into 16 buckets by producer id, and each bucket reports at most
  its 128 oldest transactions.
- **Ages** are computed at the scrape, so they grow between micro-batches.
- **Unknown values** are absent, not zero.
- **Counters and histograms** count from the start of the process. If Spark repeats a micro-batch, a process counts it
  once. If the process ends during a micro-batch, the next process runs that micro-batch again and counts it.
- **Lag** is in offsets and seconds. The number of bytes between two offsets is not known before they are read.
"""

COORDINATOR_ABOUT = """\
Kafka does not have these metrics yet. KAFKA-20407 (KIP-1344, under discussion) proposes the latency of appends to the
transaction state log, the latency of marker completion, and the number of transactions that wait for markers. The
metric names below are our own, based on the terms of the proposal. txnwatch computes the values from the coordinators'
log alone, so they need no broker setting and cover every coordinator. They also show two things that a single broker
cannot measure: the time of a transaction whose coordinator moved while it ended, and the oldest transaction of the
cluster that has not ended.

- **States.** Prepare* is PrepareCommit or PrepareAbort, Complete* is CompleteCommit or CompleteAbort: the states of a
  transaction in the coordinators' log.
- **Times** are from the brokers' clocks. The timestamp of a record is the time of its append. The field `lastUpdate` in
  a Complete* record is the time when the Prepare* record was committed, before the first marker was sent.
- **A failover** is detected if the Prepare* and the Complete* record have different leader epochs of the log's
  partition. The duration of such a transaction is in the completion and failover histograms, and not in those of
  appends and markers.
- **Coverage.** The metrics include every transaction that ends while txnwatch reads, and none that ended before its
  first start.
"""
