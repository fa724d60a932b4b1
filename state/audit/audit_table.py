"""The checks of `txnwatch audit` as one table: what fires each, what does not, how bad it is, and what helps.

docs/audit.md, `audit --list` and the schema of the JSON output are made from it. The names are a contract: users mute
a check by its name. The modules `*_checks.py` decide whether a check fires; the law of all of them: a check is certain,
or it says what it would need.
"""

from __future__ import annotations

from typing import Final

from txnwatch.state.audit.audit_check import (
    LOST_IDS,
    AuditCheck,
    CheckGroup,
    ExposureSeverity,
    IncidentSign,
    RemedyLine,
)
from txnwatch.state.audit.audit_facts import UNCLEAN
from txnwatch.state.model.incident import ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.verdicts import Reason, Verdict

_CRITICAL, _WARN, _INFO = ExposureSeverity
_TOPIC_SETTINGS = "DescribeConfigs on the topics"
_CLUSTER_SETTINGS = "DescribeConfigs on the cluster"
_BOTH_SETTINGS = "DescribeConfigs on the topics; for what a topic does not set itself, on the cluster"
_ALTER = ("kafka-configs.sh", "--alter")
_BROKERS_BACK: Final = RemedyLine("a broker is away", "bring the brokers back that have the partition")
_MORE_REPLICAS = RemedyLine(
    "fewer than 3 replicas",
    "raise the replication factor of these topics to 3",
    ("kafka-reassign-partitions.sh", "--execute", "--additional"),  # else refused while another reassignment runs
    reassigns=True,
)
# A hang whose transaction ended: its marker is missing. A hang of data that no transaction ever owned: a late write.
# If the outcome is not known, it can be either, so it is no sign of one.
_LOST_MARKER = IncidentSign(Verdict.HANGING, outcomes=frozenset({ExpectedOutcome.ABORT, ExpectedOutcome.COMMIT}))
_LATE_WRITE = IncidentSign(Verdict.HANGING, outcomes=frozenset({ExpectedOutcome.NONE}))
_LOST_ID = IncidentSign(Verdict.HANGING, LOST_IDS)
_MOVED = IncidentSign(Verdict.HANGING, doubts=frozenset({OutcomeDoubt.ONGOING_MOVED, OutcomeDoubt.RECORDS_MOVED}))
_STRAY, _STUCK, _LATE, _LONG = map(
    IncidentSign, (Verdict.STRAY_WRITE, Verdict.STUCK_PREPARE, Verdict.LATE, Verdict.LONG_RUNNING)
)


def _set(topic: str, value: str) -> tuple[str, ...]:
    return (*_ALTER, "--entity-type", "topics", "--entity-name", topic, "--add-config", value)


_ALL_IDS = ("--transactional-id", "*")


def _remove(*resource: str) -> tuple[str, ...]:
    """The command that removes one rule, exactly."""
    rule = ("--allow-principal", "{principal}", "--allow-host", "{host}", "--operation", "{operation}", *resource)
    return ("kafka-acls.sh", "--remove", "--force", *rule)


CHECKS: Final = (
    AuditCheck(
        "marker-skipped",
        CheckGroup.BROKERS,
        (_CRITICAL, _INFO),
        "a broker has release 4.3 or 4.4: a partition that has no leader when its transaction ends is taken for "
        "deleted, so it gets no marker and hangs. critical if a partition with transactional data has one replica, one "
        "in-sync replica or no leader now, else info; info if the cluster has one broker, because then the coordinator "
        "is away with the partition",
        "one replica, but no transactional data; or another release",
        {
            "broker": _BROKERS_BACK,
            "replicas": _MORE_REPLICAS,
            "upgrade": RemedyLine(
                "4.3 and 4.4", "no release has the fix yet; of 4.x, release 4.2 does not have this bug"
            ),
        },
        "none",
        "ApiVersions, Metadata, DescribeProducers",
        ("KAFKA-20734",),
        explains=(_LOST_MARKER,),
    ),
    AuditCheck(
        "no-verification",
        CheckGroup.BROKERS,
        (_CRITICAL, _WARN, _INFO),
        "a broker does not verify that a write belongs to an open transaction, so a late write of a client below "
        "transaction version 2 hangs: its setting is false, or its release is before 3.6. With the setting false: "
        "critical if an id of such a client wrote within 7 days, info if the log shows only other clients or no "
        "transactional id, else warn. info for a release, because no setting helps there: only an upgrade does",
        "true on every broker; release 3.6 without `__consumer_offsets` in a transaction",
        {
            "default": RemedyLine(
                "3.6 and later, no broker has a value of its own",
                "verify writes on all brokers",
                (
                    *(*_ALTER, "--entity-type", "brokers", "--entity-default"),
                    *("--add-config", "transaction.partition.verification.enable=true"),
                ),
            ),
            "broker": RemedyLine(
                "3.6 and later, a broker has a value of its own",
                "also verify writes on this broker, because it has a value of its own",
                (
                    *(*_ALTER, "--entity-type", "brokers", "--entity-name", "{broker}"),
                    *("--add-config", "transaction.partition.verification.enable=true"),
                ),
            ),
            "upgrade": RemedyLine(
                "before 3.6",
                "upgrade the brokers to 3.9.2, or to 4.2: before 3.6 no broker verifies a write, and no setting helps",
            ),
            "3.6": RemedyLine(
                "3.6", "upgrade the brokers: 3.6 does not verify offsets that are committed in a transaction"
            ),
        },
        _CLUSTER_SETTINGS,
        "ApiVersions, DescribeConfigs of brokers, the coordinators' log",
        ("KAFKA-14402", "KAFKA-15784"),
        explains=(_LATE_WRITE, _STRAY),
    ),
    AuditCheck(
        "old-transaction-version",
        CheckGroup.BROKERS,
        (_WARN, _INFO),
        "all brokers support transaction.version 2, and the cluster uses a lower level: an epoch has many "
        "transactions, so a late write can join the next one. warn if there are transactional ids, else info",
        "a broker does not support level 2; the levels are not known",
        {
            "raise": RemedyLine(
                "4.0 and later",
                "raise this feature alone: `--release-version` also raises kraft.version, which cannot be lowered "
                "(KAFKA-21426). Never lower it again while transactions are open",
                ("kafka-features.sh", "upgrade", "--feature", "transaction.version=2"),
            ),
            "client": RemedyLine(
                "clients",
                "it protects Java clients since 4.0 and franz-go since 1.19.3. librdkafka, sarama, kafka-python and "
                "aiokafka do not have the protocol: for them only the verification by the brokers helps",
            ),
        },
        "none",
        "ApiVersions, the coordinators' log",
        ("KIP-890",),
        explains=(_STRAY,),
    ),
    AuditCheck(
        "mixed-versions",
        CheckGroup.BROKERS,
        (_WARN, _INFO),
        "the brokers have different releases. warn if only some can verify transactional writes, or if only some "
        "support transaction.version 2, else info",
        "one release; a broker whose release is not known",
        {
            "upgrade": RemedyLine(
                "all", "finish the upgrade; during a rolling upgrade this is expected: look again later"
            )
        },
        "none",
        "ApiVersions",
    ),
    AuditCheck(
        "stuck-prepare-bugs",
        CheckGroup.BROKERS,
        (_WARN, _INFO),
        "a broker has a release whose coordinator can leave a transaction in Prepare: up to 3.7 (KAFKA-16352, info), "
        "or 3.7 to 3.9 with the new group coordinator, if offsets are committed in a transaction (KAFKA-17877, warn). "
        "Also info: up to 3.8, offsets that are committed in a transaction can be wrong until the coordinator of the "
        "group moves (KAFKA-17507)",
        "3.7 to 3.9 with the classic group coordinator, as by default; 3.8 and 3.9 without `__consumer_offsets` in a "
        "transaction; 3.9.0, which has KAFKA-17507 and cannot be told from 3.9.1",
        {
            "classic": RemedyLine(
                "3.7 to 3.9 with the new group coordinator",
                "use the classic group coordinator (group.coordinator.rebalance.protocols=classic), or upgrade to 4.2",
            ),
            "upgrade": RemedyLine(
                "up to 3.7",
                "upgrade to 3.9.2 or to 4.2; until then move the leader of the id's log partition if it happens",
            ),
            "offsets": RemedyLine("up to 3.8", "upgrade to 3.9.2 or to 4.2"),
        },
        _CLUSTER_SETTINGS,
        "ApiVersions, DescribeConfigs of brokers",
        ("KAFKA-16352", "KAFKA-17877", "KAFKA-17507"),
        explains=(_STUCK,),
    ),
    AuditCheck(
        "epoch-bugs",
        CheckGroup.BROKERS,
        (_WARN, _INFO),
        "a broker has release 4.0 to 4.2 and the cluster has transaction.version 2: a transaction at the last epoch of "
        "its producer id can be left open for ever. warn for 4.0.0 (KAFKA-19367), else info (KAFKA-20090)",
        "4.0 to 4.2 with a lower transaction.version; 4.3",
        {
            "patch": RemedyLine("4.0.0", "upgrade to 4.0.2 or later"),
            "upgrade": RemedyLine(
                "4.0.1 to 4.2", "fixed in 4.3.0, which has `marker-skipped`; restart the application if an id is stuck"
            ),
        },
        "none",
        "ApiVersions",
        ("KAFKA-19367", "KAFKA-20090"),
        explains=(IncidentSign(Verdict.LATE, least_epoch=32_766),),
    ),
    AuditCheck(
        "late-gauge-blind",
        CheckGroup.BROKERS,
        (_INFO,),
        "transaction.max.timeout.ms is more than an hour: the brokers' own gauge of late transactions rises only after "
        "this time and five minutes",
        "an hour or less",
        {"alert": RemedyLine("all", "lower it to the longest timeout in use, or alert with `txnwatch run`")},
        _CLUSTER_SETTINGS,
        "DescribeConfigs of brokers",
    ),
    AuditCheck(
        "coordinator-log-config",
        CheckGroup.LOG,
        (_CRITICAL, _WARN, _INFO),
        "`__transaction_state` can lose records or stop. critical: cleanup.policy has delete, one replica, or a "
        "partition without a leader or with fewer in-sync replicas than min.insync.replicas now. warn: "
        "min.insync.replicas is 1, or no less than the replication factor, or all replicas of a partition are in one "
        "rack of several; or cleanup.policy of `__consumer_offsets` has delete, if offsets are committed in a "
        "transaction. info: one replica, if the cluster has one broker",
        "compact, 3 replicas, min.insync.replicas 2; racks that are not set",
        {
            "compact": RemedyLine("cleanup.policy", "compact only", _set("{topic}", "cleanup.policy=compact")),
            "replicas": _MORE_REPLICAS,
            "min.isr": RemedyLine(
                "min.insync.replicas",
                "set min.insync.replicas to 2",
                _set("__transaction_state", "min.insync.replicas=2"),
            ),
            "broker": _BROKERS_BACK,
            "racks": RemedyLine("one rack", "reassign the partition to brokers of several racks"),
        },
        _TOPIC_SETTINGS,
        "Metadata, DescribeConfigs of the topic",
        explains=(_LOST_ID, _STUCK, _LATE),
    ),
    AuditCheck(
        "coordinator-log-large",
        CheckGroup.LOG,
        (_WARN,),
        "log.cleaner.enable is false on a broker: `__transaction_state` is never compacted there, so it grows for "
        "ever, and each new coordinator reads all of it before a transaction of its ids can end",
        "true on every broker; a log that is large for another reason",
        {
            "cleaner": RemedyLine(
                "all",
                "set log.cleaner.enable=true in the file of each broker that has it false, and restart the broker",
            )
        },
        _CLUSTER_SETTINGS,
        "DescribeConfigs of brokers",
        explains=(_STUCK, _LATE),
    ),
    AuditCheck(
        "coordinator-partitions",
        CheckGroup.LOG,
        (_CRITICAL,),
        "a live record is in another partition of `__transaction_state` than its id belongs to: partitions were added, "
        "and brokers disagree about the coordinator",
        "a count that never changed",
        {
            "restart": RemedyLine(
                "all",
                "there is no supported way back. First stop the applications of these ids, which must end their open "
                "transactions: after its restart a broker finds no such id, and what is open then hangs. Then restart "
                "all brokers, because each reads the count at its start, run `txnwatch find-hanging`, and start the "
                "applications: each gets a new producer id. Do not change the number again. The misplaced records "
                "expire after transactional.id.expiration.ms",
            )
        },
        "none",
        "Metadata, the coordinators' log",
        ("KAFKA-20029",),
        explains=(_LOST_ID, _MOVED, _LATE),
    ),
    AuditCheck(
        "producer-id-reused",
        CheckGroup.LOG,
        (_CRITICAL,),
        "two transactional ids have the same producer id now. Kafka assigns no producer id twice, so the metadata of "
        "the cluster was restored or lost; a marker of one ends data of the other",
        "an id that had the producer id before",
        {
            "restart": RemedyLine(
                "all",
                "stop both applications, and start one of them under a new transactional id: a restart with the same "
                "id keeps the producer id. The finding ends when the old id has expired",
            )
        },
        "none",
        "the coordinators' log",
        explains=(IncidentSign(Verdict.HANGING, frozenset(Reason) - LOST_IDS), _STRAY),
    ),
    AuditCheck(
        "unclean-election",
        CheckGroup.TOPICS,
        (_CRITICAL, _WARN, _INFO),
        "unclean.leader.election.enable is true for `__transaction_state` or a topic with transactional data, where it "
        "counts: with KRaft from 3.9 on the topic, as the cluster-wide default, or on the node or in the file of a "
        "broker that is also a controller, with ZooKeeper anywhere. critical for `__transaction_state`, with "
        "min.insync.replicas 1, or with one in-sync replica, else warn. info with KRaft before 3.9, which ignores it "
        "until the upgrade",
        "true on the node or in the file of another broker with KRaft: the controllers decide, and what they have is "
        "not seen; one replica, which has no election to lose",
        {
            "node": RemedyLine(
                "a broker that is also a controller",
                "set it to false on the node",
                (*_ALTER, "--entity-type", "brokers", "--entity-name", "{broker}", "--add-config", f"{UNCLEAN}=false"),
            ),
            "topic": RemedyLine(
                "all",
                "set it to false on the topic: this wins everywhere",
                _set("{topic}", f"{UNCLEAN}=false"),
            ),
        },
        _BOTH_SETTINGS,
        "DescribeConfigs of topics and of brokers",
        ("KAFKA-7408", "KAFKA-20716"),
        explains=(_LOST_MARKER, _LOST_ID),
    ),
    AuditCheck(
        "replication",
        CheckGroup.TOPICS,
        (_CRITICAL, _WARN, _INFO),
        "a topic with transactional data stops its transactions if one broker is away. critical: fewer in-sync "
        "replicas than min.insync.replicas now. warn: one replica, or min.insync.replicas is no less than a "
        "replication factor above 1. info: one replica if the cluster has one broker, or all replicas in one rack of "
        "several",
        "one replica without transactional data; 3 replicas with min.insync.replicas 1 or 2",
        {
            "replicas": _MORE_REPLICAS,
            "min.isr": RemedyLine(
                "min.insync.replicas is no less than the replication factor",
                "lower min.insync.replicas to allow one replica to be away",
                _set("{topic}", "min.insync.replicas={value}"),
            ),
            "broker": _BROKERS_BACK,
            "racks": RemedyLine("one rack", "reassign the partitions to brokers of several racks"),
        },
        _BOTH_SETTINGS,
        "Metadata, DescribeProducers, DescribeConfigs of topics and of brokers",
        explains=(_STUCK,),
    ),
    AuditCheck(
        "compaction-race",
        CheckGroup.TOPICS,
        (_WARN,),
        "a compacted topic with transactional data and several replicas has a delete.retention.ms below an hour, or a "
        "replica is out of sync now: compaction can remove a marker before the replica has copied it, and the "
        "transaction is open there when the replica becomes the leader",
        "the default of a day and all replicas in sync; one replica; a topic that is not compacted",
        {
            "retention": RemedyLine(
                "below an hour",
                "raise delete.retention.ms above the longest outage that you allow",
                _set("{topic}", "delete.retention.ms=86400000"),
            ),
            "back": RemedyLine(
                "a replica is away",
                "bring it back within delete.retention.ms, else delete its copy of the partition before it starts",
            ),
        },
        _TOPIC_SETTINGS,
        "Metadata, DescribeConfigs of topics",
        explains=(_LOST_MARKER,),
    ),
    AuditCheck(
        "retention-below-timeout",
        CheckGroup.TOPICS,
        (_WARN,),
        "retention.ms of a topic is below the timeout of an id that has written to it: retention deletes up to "
        "the high "
        "watermark, not to the last stable offset, so data can be gone before anybody may read it",
        "a retention as long as the longest timeout; compact only; ids that wrote elsewhere",
        {
            "longer": RemedyLine(
                "all", "raise retention.ms above the longest timeout", _set("{topic}", "retention.ms={value}")
            ),
            "shorter": RemedyLine("all", "or a shorter transaction.timeout.ms of the application"),
        },
        _TOPIC_SETTINGS,
        "DescribeConfigs of topics, the coordinators' log",
    ),
    AuditCheck(
        "times-out",
        CheckGroup.IDS,
        (_WARN, _INFO),
        "transactions of one form of ids were aborted after they had been open for their own timeout, in the part of "
        "the log that has every record. warn from 3 on, else info",
        "an abort before the timeout",
        {
            "application": RemedyLine(
                "all",
                "find why the application is slow or dead; commit more often; only then raise its "
                "transaction.timeout.ms. A Flink sink loses the data of a finished checkpoint: restore the job before "
                "the timeout",
            )
        },
        "none",
        "the coordinators' log",
        explains=(_LONG,),
    ),
    AuditCheck(
        "fenced-while-open",
        CheckGroup.IDS,
        (_WARN,),
        "at least 3 times in 10 minutes, an id was initialised while its transaction was open: its coordinator aborted "
        "it before its timeout with a higher epoch, and the next record of the id is Empty within a minute. Two "
        "producers share the id, or one crashes in a loop",
        "an id that is initialised with nothing open, as Flink does; an abort by the client; a client with the "
        "protocol of transaction.version 2, whose own abort raises the epoch too",
        {"one": RemedyLine("all", "give each running producer a transactional id of its own")},
        "none",
        "the coordinators' log",
    ),
    AuditCheck(
        "one-shot-ids",
        CheckGroup.IDS,
        (_WARN, _INFO),
        "at least 100 ids have one form whose variable part is random (a UUID, 8 or more hexadecimal digits, or 10 or "
        "more digits), and 9 of 10 were not used for a day: nobody initialises the id of a crashed instance again, so "
        "its transaction blocks readers for its whole timeout. warn if one of them timed out, else info",
        "ids with a small number at the end; ids that are used",
        {
            "stable": RemedyLine(
                "all",
                "use stable ids, for example the ordinal of a StatefulSet; the finding ends when the old ids expired",
            ),
            "streams": RemedyLine("Kafka Streams", "keep the state directory: the process id of the ids is in it"),
            "spring": RemedyLine("Spring", "use no random transaction id prefix"),
            "flink": RemedyLine("Flink", "use the pooling strategy for transactional ids (FLIP-511)"),
        },
        "none",
        "the coordinators' log",
        explains=(_LONG,),
    ),
    AuditCheck(
        "long-timeout",
        CheckGroup.IDS,
        (_WARN, _INFO),
        "ids of one form have a timeout of more than 15 minutes: a crash blocks readers for that long. warn from an "
        "hour on, else info. info for two-phase commit (2147483647 ms): only its owner ends such a transaction",
        "15 minutes or less",
        {
            "lower": RemedyLine("all but Flink", "lower transaction.timeout.ms to what a recovery needs"),
            "flink": RemedyLine("Flink", "the timeout must exceed the time of a checkpoint and of a recovery: keep it"),
        },
        "none",
        "the coordinators' log",
        explains=(_LONG,),
    ),
    AuditCheck(
        "old-protocol",
        CheckGroup.IDS,
        (_INFO,),
        "the cluster has transaction.version 2, and clients of these ids do not use it: only the verification by the "
        "brokers keeps their late writes from hanging",
        "Empty, PrepareAbort and CompleteAbort, which may have the version of another transaction or of the broker; a "
        "record of format 0",
        {
            "java": RemedyLine("Java clients before 4.0", "upgrade the client"),
            "other": RemedyLine(
                "librdkafka, sarama, kafka-python and aiokafka",
                "no version has the protocol: keep transaction.partition.verification.enable on",
            ),
        },
        "none",
        "ApiVersions, the coordinators' log",
        ("KIP-890",),
        explains=(_STRAY,),
    ),
    AuditCheck(
        "never-commits",
        CheckGroup.IDS,
        (_INFO,),
        "at least 20 transactions of one form of ids ended in the part of the log that has every record, and none "
        "committed",
        "one commit",
        {"errors": RemedyLine("all", "look at the errors of the application")},
        "none",
        "the coordinators' log",
    ),
    AuditCheck(
        "internal-writers",
        CheckGroup.RIGHTS,
        (_CRITICAL, _WARN, _INFO),
        "a principal may write to `__transaction_state` or `__consumer_offsets`, also by a rule for `*`: brokers "
        "accept "
        "such writes from any client that calls itself `__admin_client`. critical for `User:*`, else warn. info if the "
        "brokers have no authorizer",
        "super users, which are in no answer; a rule that denies it to all hosts",
        {
            "deny": RemedyLine(
                "a principal that is no operator; mute an operator with --ignore internal-writers:PRINCIPAL",
                "deny it: no application needs this right, also not to commit offsets",
                (
                    *("kafka-acls.sh", "--add", "--deny-principal", "{principal}", "--operation", "Write"),
                    *("--topic", "{topic}"),
                ),
            ),
            "authorizer": RemedyLine(
                "no authorizer", "use an authorizer, or keep strangers off the network of the brokers"
            ),
        },
        "Describe on the cluster",
        "DescribeAcls",
    ),
    AuditCheck(
        "marker-writers",
        CheckGroup.RIGHTS,
        (_CRITICAL, _INFO),
        "a principal has ClusterAction on the cluster, or Alter from 3.8 on: it can write markers into any "
        "transaction. "
        "critical for `User:*`, else info, because brokers and administrators need it",
        "Alter before 3.8; super users",
        {
            "show": RemedyLine("all", "look at the rules", ("kafka-acls.sh", "--list", "--cluster")),
            "everybody": RemedyLine(
                "`User:*`",
                "first grant the right to the brokers and administrators that have it by this rule alone; then remove "
                "the rule",
                _remove("--cluster"),
            ),
            "one": RemedyLine(
                "another principal", "unless it is a broker or an administrator: remove its rule", _remove("--cluster")
            ),
        },
        "Describe on the cluster",
        "DescribeAcls",
        ("KAFKA-16513",),
    ),
    AuditCheck(
        "id-owners",
        CheckGroup.RIGHTS,
        (_WARN, _INFO),
        "a principal may write with all transactional ids, so it can fence any application. warn for `User:*`, "
        "else info",
        "rules for a prefix of ids",
        {
            "show": RemedyLine("all", "look at the rules", ("kafka-acls.sh", "--list", *_ALL_IDS)),
            "everybody": RemedyLine(
                "`User:*`",
                "first grant each application Write and Describe on the transactional ids with its prefix; then remove "
                "the rule",
                _remove(*_ALL_IDS),
            ),
            "one": RemedyLine(
                "another principal",
                "first grant it Write and Describe on the transactional ids with its prefix; then remove the rule",
                _remove(*_ALL_IDS),
            ),
        },
        "Describe on the cluster",
        "DescribeAcls",
    ),
)

BY_NAME: Final = {check.name: check for check in CHECKS}
