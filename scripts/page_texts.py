"""The text of the generated pages around their tables."""

from __future__ import annotations

ABORT_ABOUT = """\
`txnwatch run --auto-abort dry-run` says what it would end, `on` ends it; it is off by default. Only what is proven to
hang is ended, never what a coordinator still owns, and never against the outcome: where the client was told that it
committed, or where that is not known, nothing is done. The alert comes first; `--abort-after-ms` later comes the act:

1. the same fresh read that confirmed the incident (partition, coordinator, partition), the span's past in its
   partition's log once more, which must lead to the same outcome, and the table below;
2. an event `updated` with `action.decision` = abort, delivered before anything is written;
3. the lease asked for once more: if several instances run, the member of the group `txnwatch-abort-<cluster id>` that
   has partition 0 of the events topic acts (it needs READ on that group and topic; an instance in dry-run is a member
   too, so run all of them in the same mode);
4. one ABORT marker, with the producer epoch and coordinator epoch that the partition's leader tells;
5. the partition read again, whatever the broker answered, and the marker that closed the transaction: somebody else's
   may have been there first. An event with `action.result`: verified (a marker of the kind that was written closed it),
   still_open, failed (one of the other kind closed it: the detail says where; or nothing was written), or unknown.

Nothing of this rests on the events topic or on Redis, which others may be able to write: only what this process has
found itself is acted upon. `--abort-after-ms` counts from when it did, and so begins anew with each start. Outcomes and
the markers of the last hour are kept in `txnwatch-evidence.jsonl` beside the checkpoint; with a checkpoint that is not
a local directory, a restart forgets the outcomes that the coordinator shows no more. The budget counts what is told on
the topic as well: a forged event can stop aborts, and cause none. Whoever can join the group can hold the lease and do
nothing: after five minutes in which nothing was decided, `run` says so.

A process that dies between 2 and 5 tells what the log says when it is back. If the incident ends before that, its end
tells: verified if such a marker ended it, unknown otherwise. A marker needs ALTER on the cluster, and reading which one
closed the transaction needs READ on the topic: without it the result is unknown. Whatever is refused is an event too,
each reason once for an incident. The first refusal of the table counts.
"""

BY_HAND = """\
## By hand

`txnwatch abort --topic T --partition N --start-offset O` (or `--producer-id ID`) takes two looks, a second apart, and
the same decision without lists, clocks and budgets. An unknown outcome is no refusal there: the loss is named, and
somebody says yes. `--result commit` completes a transaction that is proven to have committed by what the coordinator's
log still has; aborting such a one takes `--lose-acknowledged-data`. An epoch that may be used again is refused by hand
too: fence the id first. Starting its application anew does it; so does
`kafka-transactions.sh forceTerminateTransaction`, which also overwrites the id's timeout and creates an id that is not
known. The epochs of the marker are read from the partition's leader and never taken from a caller.

An abort by hand is told on the events topic, if there is one, as an incident of its own: opened with the decision,
updated with the result, resolved when it is read to be closed, as what the marker that closed it says: `committed` or
`aborted`, whatever was asked for, or `no_longer_open` if it could not be read. The exit code is 0 only for `verified`.
The incident of a running watch goes on, and ends with the marker in the log: its sequence belongs to that watch.
"""

METRICS_ABOUT = """\
`txnwatch run --metrics-port 9464` serves them at `/metrics`, with `/-/healthy` (the process answers) and `/-/ready` (a
barrier was judged within the last 15 s) beside it; `--metrics-host` says on which address. Alert rules are in
[`deploy/prometheus/rules.yaml`](../deploy/prometheus/rules.yaml), a dashboard in
[`deploy/grafana/txnwatch.json`](../deploy/grafana/txnwatch.json), and what to do about each alert in
[the runbook](runbook.md). The picture of the dashboard in the README is drawn by `scripts/dashboard_picture.py`: the
panels, their queries and the figures are real, recorded by a Prometheus from a run with real faults; the drawing is
matplotlib's and no screenshot of Grafana.

- No label is a transactional id or a producer id: there is no bound to how many there can be. They are in the events.
- `topic` and `partition` are labels only of what is pinned now, by at most 128 transactions of each state bucket, the
  oldest; there are 16 buckets.
- Ages grow between micro-batches: they are made when they are scraped. What is not known is absent, not zero.
- Counters and histograms count since the process started. A micro-batch that Spark runs again is counted once in a
  process; one that was under way when the process died is counted again by the next one, from zero.
- Bytes are not among the lags: how many bytes lie between two offsets is only known by who has read them.
"""

COORDINATOR_ABOUT = """\
Kafka has no such metrics yet: KAFKA-20407 (KIP-1344, under discussion) asks for the latency of appends to the
transaction state log and of marker completion, and for the transactions that wait for markers. The names below are
ours, in the proposal's words. They come from the log alone, so they need nothing of the brokers and cover every
coordinator; and they have what a broker cannot have, a transaction that began to end under one coordinator and ended
under another, and the oldest that has not ended at all.

A record's timestamp says when it was appended; the `lastUpdate` inside Complete* when Prepare* was committed, which is
before the first marker is sent. A failover is two records under different leader epochs of the log's partition: its
duration is told as a whole, and has no part in the appends and the markers. Times are the brokers' clocks. Each
transaction that ends while txnwatch reads is counted; those that ended before its first start are not.
"""
