"""What the errors and states mean that applications, Kafka Streams, Kafka Connect and Flink print; one table.

A person has the name of an error, or a line with one, before he has a transactional id. Each row has the names, what
they mean, and which command of txnwatch finds what the error does not name.

A target without blanks is compared as a whole: `restoring-app` is an id, and no word. In a line, each word is compared
as it is written, and the phrases. The rows are in the order of how much they say: a cause stands before the error that
wraps it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from txnwatch.state.telling.commands import Origin, check_cluster, find_hanging, list_open


class Ask(StrEnum):
    """What finds the transaction, the id or the fault that an error does not name."""

    HANGING = "hanging"
    OPEN = "open"
    CLUSTER = "cluster"


_COMMANDS: dict[Ask, Callable[[Origin], str]] = {
    Ask.HANGING: find_hanging,
    Ask.OPEN: list_open,
    Ask.CLUSTER: check_cluster,
}
_THE_ID = "`txnwatch explain --transactional-id ID` with the id of that client says who ended its last transaction"


@dataclass(frozen=True, slots=True)
class ErrorWord:
    """One row.

    Attributes:
        names: the names of one error: of the protocol, in Java and in librdkafka; or of a state.
        means: what it means, and what to ask about one id or group.
        ask: the command that needs no id.
        phrases: parts of the messages that come without a name, in small letters.
    """

    names: tuple[str, ...]
    means: str
    ask: Ask
    phrases: tuple[str, ...] = ()


ERROR_WORDS: Final = (
    ErrorWord(
        ("PRODUCER_FENCED", "ProducerFencedException", "_FENCED", "ERR__FENCED"),
        "another client has sent InitProducerId for the same transactional id, or somebody has fenced it. This client "
        f"must be closed; its open transaction was aborted. {_THE_ID}, and whether two clients use it.",
        Ask.OPEN,
        (
            "there is a newer producer with the same transactionalid",
            "has been fenced by a newer instance",
            "fenced by another producer with the same transactionalid",
        ),
    ),
    ErrorWord(
        ("INVALID_PRODUCER_EPOCH", "InvalidProducerEpochException", "ERR_INVALID_PRODUCER_EPOCH"),
        "the client writes with an epoch that is no longer that of its id: its coordinator has aborted its transaction "
        "at the timeout, or another client has the id. Nothing that it writes now counts. "
        f"{_THE_ID}: at its timeout, or for a new InitProducerId.",
        Ask.OPEN,
        ("producer attempted to produce with an old epoch",),
    ),
    ErrorWord(
        ("INVALID_TXN_STATE", "InvalidTxnStateException", "ERR_INVALID_TXN_STATE"),
        "the request does not fit the state of the transaction: the transaction has already ended (for example at its "
        "timeout), or a broker does not find the partition in it and refuses a late write. The second protects the "
        f"partition from a hang. {_THE_ID}.",
        Ask.HANGING,
        ("the producer attempted a transactional operation in an invalid state",),
    ),
    ErrorWord(
        ("TRANSACTION_ABORTABLE", "TransactionAbortableException", "ERR_TRANSACTION_ABORTABLE"),
        "the broker could not add the partition to the transaction, or a write came without it. The client must abort "
        "this transaction and may begin the next one; it need not be closed. Nothing hangs because of it. If it comes "
        "again and again, check whether the coordinators answer.",
        Ask.CLUSTER,
    ),
    ErrorWord(
        ("TransactionAbortedException",),
        "records were dropped from the client's buffer because their transaction was aborted by the application. They "
        "were not written. It is a consequence: look for the error before it.",
        Ask.OPEN,
    ),
    ErrorWord(
        ("UNSTABLE_OFFSET_COMMIT", "UnstableOffsetCommitException", "ERR_UNSTABLE_OFFSET_COMMIT"),
        "the committed offset of a group is pending in a transaction that has not ended. For a moment this is usual. "
        "If it lasts, that transaction hangs on __consumer_offsets, and the group cannot start: "
        "`txnwatch explain --group GROUP` names the transaction.",
        Ask.HANGING,
        (
            "there are unstable offsets that need to be cleared",
            "unstable offset commit",
            "the following partitions still have unstable offsets",
        ),
    ),
    ErrorWord(
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorizationException"),
        "the user of the client lacks a right on its transactional id: WRITE to use it, DESCRIBE to see it. Where the "
        "ids change, a right on a prefix is needed. The transaction that was open under the right is not ended by it.",
        Ask.OPEN,
        ("transactional id authorization failed",),
    ),
    ErrorWord(
        ("TRANSACTIONAL_ID_NOT_FOUND", "TransactionalIdNotFoundException"),
        "the coordinator has no such transactional id: it has expired (transactional.id.expiration.ms, 7 days), it is "
        "misspelt, or another cluster has it. `txnwatch explain --transactional-id ID` also reads the former records.",
        Ask.OPEN,
    ),
    ErrorWord(
        ("INVALID_PRODUCER_ID_MAPPING", "InvalidPidMappingException", "ERR_INVALID_PRODUCER_ID_MAPPING"),
        "the coordinator has another producer id for this transactional id, or none: the id has expired because it was "
        "not used for transactional.id.expiration.ms (7 days), or its records were lost. The client must be closed and "
        "started again. What was open under the old producer id may hang.",
        Ask.HANGING,
        ("producer id which is not currently assigned to its transactional id",),
    ),
    ErrorWord(
        ("UNKNOWN_PRODUCER_ID", "UnknownProducerIdException", "ERR_UNKNOWN_PRODUCER_ID"),
        "the partition has no records of this producer any more (retention, DeleteRecords or producer.id.expiration.ms "
        "has removed them), so it cannot check the sequence. Clients since Kafka 2.5 continue by themselves. A "
        "transaction that is open stays open until its coordinator ends it.",
        Ask.OPEN,
        ("could not locate producer metadata",),
    ),
    ErrorWord(
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "OutOfOrderSequenceException"),
        "a batch of the client is missing on the partition, so the next one is refused. The transaction must be "
        "aborted. If it comes after a failover, records were lost on the broker: look for unclean elections.",
        Ask.OPEN,
    ),
    ErrorWord(
        ("INVALID_TRANSACTION_TIMEOUT", "InvalidTxnTimeoutException", "ERR_INVALID_TRANSACTION_TIMEOUT"),
        "the client asks for a longer transaction.timeout.ms than the brokers allow (transaction.max.timeout.ms, 15 "
        "minutes by default; Flink asks for an hour). No transaction was begun. Lower the one or raise the other; "
        "what was open before under this id is still open.",
        Ask.OPEN,
        ("the transaction timeout is larger than the maximum value allowed",),
    ),
    ErrorWord(
        ("CONCURRENT_TRANSACTIONS", "ConcurrentTransactionsException", "ERR_CONCURRENT_TRANSACTIONS"),
        "the id's last transaction is decided, and its markers are not all written yet. For less than a second this is "
        "usual, and clients try again. If it lasts, a leader cannot write its marker: "
        "`txnwatch explain --transactional-id ID` names the partitions that it waits for.",
        Ask.OPEN,
        ("concurrent operation on the same transaction",),
    ),
    ErrorWord(
        ("TRANSACTION_COORDINATOR_FENCED", "TransactionCoordinatorFencedException"),
        "a marker came with a lower coordinator epoch than the partition has: from a coordinator that has been "
        "replaced, or from an abort by hand with a wrong epoch. The partition keeps what it had. If the transaction is "
        "still open, `txnwatch abort` uses the right epoch.",
        Ask.HANGING,
    ),
    ErrorWord(
        (
            "COORDINATOR_NOT_AVAILABLE",
            "CoordinatorNotAvailableException",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "CoordinatorLoadInProgressException",
            "NOT_COORDINATOR",
            "NotCoordinatorException",
            "GROUP_COORDINATOR_NOT_AVAILABLE",
        ),
        "the coordinator of the id or of the group moves to another broker or loads its log: clients try again. If it "
        "lasts, a partition of __transaction_state or __consumer_offsets has no leader or too few in-sync replicas, or "
        "its broker cannot load it. Then nothing ends the transactions of that partition.",
        Ask.CLUSTER,
    ),
    ErrorWord(
        ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NotEnoughReplicasException"),
        "a partition has fewer in-sync replicas than min.insync.replicas, so it takes no writes and no markers. "
        "Transactions on it cannot end until a replica returns.",
        Ask.CLUSTER,
    ),
    ErrorWord(
        ("CLUSTER_AUTHORIZATION_FAILED", "ClusterAuthorizationException"),
        "a right on the cluster is missing: IDEMPOTENT_WRITE for an idempotent producer on brokers before 2.8, or "
        "ALTER or CLUSTER_ACTION for an abort by hand.",
        Ask.CLUSTER,
    ),
    ErrorWord(
        ("TaskMigratedException",),
        "another member of the Kafka Streams application has taken over the task, or the producer of this one was "
        "fenced: a rebalance while the thread was busy for longer than max.poll.interval.ms, or a transaction that "
        f"timed out. Streams rejoins by itself. {_THE_ID}.",
        Ask.OPEN,
    ),
    ErrorWord(
        ("TaskCorruptedException",),
        "Kafka Streams drops the state of a task and restores it: with exactly-once, a transaction of the task has "
        f"failed, often at its timeout. {_THE_ID}. If the task does not leave RESTORING, look for a hang.",
        Ask.HANGING,
        ("are corrupted and hence need to be re-initialized",),
    ),
    ErrorWord(
        ("RESTORING", "REBALANCING", "PARTITIONS_ASSIGNED", "PARTITIONS_REVOKED"),
        "a state of Kafka Streams: it reads its changelog topics before it processes. If it stays there, a hanging "
        "transaction on a changelog topic stops it: with exactly-once, restoring reads with read_committed and waits "
        "at the last stable offset for ever.",
        Ask.HANGING,
        ("restore consumer",),
    ),
    ErrorWord(
        ("TwoPhaseCommitSinkFunction", "FlinkKafkaException", "KafkaCommitter"),
        "a sink of Flink: its transactions stay open from one checkpoint to the next, and a finished checkpoint must "
        "still be committed. If the job does not run, they stay open until their timeout and then lose data: restart "
        "the job from its last checkpoint before the timeout, and do not end them by hand.",
        Ask.OPEN,
        ("unable to commit transaction", "failed to commit kafkacommittable"),
    ),
    ErrorWord(
        ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "CommitFailedException"),
        "the consumer was no longer a member of its group when its offsets were sent with the transaction: a rebalance "
        "has given its partitions away. The transaction must be aborted and its records are read again.",
        Ask.OPEN,
        ("transaction offset commit failed due to consumer group metadata mismatch",),
    ),
    ErrorWord(
        ("initTransactions", "awaiting InitProducerId", "REQUEST_TIMED_OUT", "TimeoutException"),
        "a request to the coordinator was not answered in time. For initTransactions, the usual reasons are: the "
        "coordinator of this id is not reachable (its host or listener name, a firewall, __transaction_state without a "
        "leader or with too few in-sync replicas), or the id's last transaction cannot end, because a marker is "
        "missing. `txnwatch explain --transactional-id ID` tells the two apart.",
        Ask.CLUSTER,
        (
            "while awaiting initproducerid",
            "while awaiting addoffsetstotxn",
            "while awaiting endtxn",
            "timeout expired while initializing transactional state",
        ),
    ),
    ErrorWord(
        ("KafkaException", "IllegalStateException"),
        "the producer has had an error before and refuses every transactional method since then. It is a consequence: "
        "the error before it in the client's log says why. Ask about that one, for example "
        "`txnwatch explain PRODUCER_FENCED`.",
        Ask.OPEN,
        (
            "cannot execute transactional method",
            "cannot add partition",
            "invalid transition attempted from state",
        ),
    ),
    ErrorWord(
        ("PrepareCommit", "PrepareAbort"),
        "a state of a transactional id: the end of its transaction is decided, and a marker or the last record of its "
        "coordinator is missing. For less than a second this is usual. `txnwatch explain --transactional-id ID` names "
        "the partitions that it waits for.",
        Ask.OPEN,
    ),
)


# Which row a text has.

_PREFIX = re.compile(r"^(?:org\.apache\.kafka\.[\w.]*\.|errors\.|kafkaerror\.|rd_kafka_resp_err_)", re.IGNORECASE)
_CODE = re.compile(r"\(-?\d{1,5}\)$")  # INVALID_PRODUCER_EPOCH(47)
_WORD = re.compile(r"(?:RD_KAFKA_RESP_ERR_)?(\w+)")
_EXACT = {name: place for place, row in enumerate(ERROR_WORDS) for name in row.names}
_BY_NAME = {name.lower(): row for row in ERROR_WORDS for name in row.names}
_PHRASES = [(phrase, place) for place, row in enumerate(ERROR_WORDS) for phrase in row.phrases]


def word_in(text: str) -> ErrorWord | None:
    """The row of an error name, or of a line with one; None if it has none."""
    if not re.search(r"\s", text.strip()):
        return _named(_CODE.sub("", text.strip()).strip(":;,.()[]{}\"'"))
    if (named := _named("_".join(text.split()))) is not None:  # concurrent transactions
        return named
    small = text.lower()
    names = _EXACT.keys() & set(_WORD.findall(text))
    places = [*(_EXACT[name] for name in names), *(place for phrase, place in _PHRASES if phrase in small)]
    return ERROR_WORDS[min(places)] if places else None


def _named(word: str) -> ErrorWord | None:
    return _BY_NAME.get(_PREFIX.sub("", word).lower())


def command_of(origin: Origin, row: ErrorWord) -> str:
    """The command that needs no id."""
    return _COMMANDS[row.ask](origin)


def means_text(row: ErrorWord) -> str:
    """What a row says."""
    return f"{row.names[0]}: {row.means}"
