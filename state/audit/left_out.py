"""The exposures that no check of `txnwatch audit` looks for, and why. docs/audit.md and `audit --list` show them.

Apart: the code that evaluates the checks does not need it.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class NoCheck(NamedTuple):
    """An exposure without a check: what no answer of a broker proves."""

    name: str
    exposure: str
    why: str


NO_CHECKS: Final = (
    NoCheck(
        "elr-off",
        "eligible.leader.replicas.version is off",
        "it protects only while fewer replicas are in sync than min.insync.replicas, which `replication` shows; what "
        "it changes with min.insync.replicas 1 is not proven",
    ),
    NoCheck(
        "many-producers",
        "thousands of producers on a partition",
        "only DescribeProducers of all partitions counts them: as many bytes as a census, without a hang that follows",
    ),
    NoCheck(
        "copied-topic",
        "a topic that is a copy byte for byte (Cluster Linking, a restored backup)",
        "producers that no coordinator knows are no proof: their ids can have expired. Name such topics in "
        "`--foreign-topics`, and run `find-hanging` after a failover",
    ),
    NoCheck(
        "coordinator-log-size",
        "the size of `__transaction_state`",
        "millions of live ids make it large, too. Only a cleaner that is off is certain (`coordinator-log-large`)",
    ),
    NoCheck(
        "coordinator-log-partitions",
        "another number of partitions of `__transaction_state` than transaction.state.log.num.partitions",
        "the setting counts only until the topic exists: then the brokers read the number from the metadata, and a "
        "change of it is what `coordinator-partitions` proves",
    ),
    NoCheck(
        "offsets-of-3.9.0",
        "KAFKA-17507 in 3.9.0",
        "3.9.0 answers like 3.9.1, which has the fix. So there is no flag that states the release of the brokers: no "
        "other check depends on a patch release that cannot be seen",
    ),
    NoCheck(
        "lost-load",
        "KAFKA-18137",
        "every release before 4.0 has it. Ids of one partition of the log are late until its leader moves: that is "
        "`late`",
    ),
    NoCheck("old-clients", "old versions of clients", "no answer of a broker has them"),
)
