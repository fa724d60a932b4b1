"""Decoders of what other clients and programs can write: the events topic, Redis, tokens, and files."""

from __future__ import annotations

import base64
import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import bcrypt

from fuzz.log_targets import LOGGED
from fuzz.target import Target
from support.heartbeats import a_heartbeat
from support.incidents import an_event
from txnwatch.cli.output import event_line
from txnwatch.setting_sources import read_properties
from txnwatch.sinks.delivery.encoding import from_bytes, plain, to_avro, to_json
from txnwatch.sinks.delivery.redis_views import event_of_hash
from txnwatch.sinks.incidents.evidence_file import EvidenceFile
from txnwatch.state.incidents import heartbeat
from txnwatch.state.model.errors import BadEventError, BrokerError, CheckpointError, ConfigError
from txnwatch.state.model.values import log_numbered
from txnwatch.streaming.client.tokens import token_of
from txnwatch.streaming.job.checkpoint import last_offset, offset_in
from txnwatch.streaming.job.checkpoint_lease import Holder, holder_of
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.driver_file import read_driver_file
from txnwatch.streaming.source.offsets import VERSION
from txnwatch.streaming.source.rows import pack_facts, unpack_facts
from txnwatch.web.server import credentials
from txnwatch.web.web_config import Users, read_web_config

_EVENT, _BEAT = an_event(), a_heartbeat()
_JSON = True
_TEMPORARY = tempfile.TemporaryDirectory(prefix="txnwatch-fuzz-")
_DIRECTORY = Path(_TEMPORARY.name)


def _event(data: bytes) -> None:
    """An event that is accepted can be written again, in both formats, and shown in a terminal."""
    event = from_bytes(data)
    assert from_bytes(to_json(event)) == event
    assert from_bytes(to_avro(event)) == event
    assert all(line.isprintable() for line in event_line(event).split("\n"))


def _hash(data: bytes) -> None:
    """An incident's hash in Redis: names and values that any client can set."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict):
        event_of_hash({name: one if isinstance(one, str) else json.dumps(one) for name, one in fields.items()})


def _heartbeat(data: bytes) -> None:
    found = heartbeat.from_bytes(data, _BEAT.key)
    assert heartbeat.from_bytes(heartbeat.to_bytes(found), found.key) == found


def _claims(data: bytes) -> None:
    token_of(f"a.{base64.urlsafe_b64encode(data).decode().rstrip('=')}.b", "the token server", None)


def _as_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    file = _DIRECTORY / "file"

    def run(data: bytes) -> object:
        file.write_bytes(data)
        return read(file)

    return run


def _checkpoint(data: bytes) -> None:
    offsets = _DIRECTORY / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / "0").write_bytes(data)
    with contextlib.suppress(ValueError):
        offset_in(data.decode(errors="replace"))
    last_offset(offsets.parent)


_FOLD = TransactionFold(log_numbered(0), 0, 9)
_FOLD.feed(b"".join(LOGGED))
_FACTS = list(_FOLD.facts())
_EVIDENCE = (
    '[["incident", 5]]\n{"format":2,"topic":"orders","topic_id":"Zm9v","partition":3,"producer_id":7,"start_offset":9,'
    '"producer_epoch":2,"last_sequence":null,"last_timestamp_ms":null,"outcome":"abort","witness":null}'
)
_OFFSET = {
    "version": VERSION,
    "cluster_id": "c",
    "barrier": 1,
    "data_listed_ms": 5,
    "coordinator_listed_ms": 5,
    "topics": {"orders": {"id": "Zm9v", "partitions": {"0": [4, 9, 2, 1, 1]}}},
    "begun": {},
    "reread": {},
    "gone": {},
    "backlog_end": {},
    "scan_interval_ms": None,
    "coordinator_view": "log",
}
_OPS_HASH = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()
_WEB, _USERS = f"basic_auth_users:\n  ops: {_OPS_HASH}\n", Users({"ops": _OPS_HASH})

TARGETS = [
    Target(
        "event", "a record of the events topic", _event, (BadEventError,), [to_json(_EVENT), to_avro(_EVENT)], _JSON
    ),
    Target(
        "redis_incident",
        "an incident in Redis",
        _hash,
        (BadEventError,),
        [json.dumps({name: value for name, value in plain(_EVENT).items() if value is not None}).encode()],
        _JSON,
    ),
    Target("heartbeat", "a heartbeat", _heartbeat, (BadEventError,), [heartbeat.to_bytes(_BEAT)], _JSON),
    Target("claims", "the claims of a token", _claims, (BrokerError,), [b'{"exp": 1e12, "sub": "ops"}', b"[1]"], _JSON),
    Target(
        "properties",
        "a Java properties file",
        _as_file(lambda file: read_properties(file, "f")),
        (ConfigError,),
        [b"a=b\\u0041\n#c\n"],
    ),
    Target(
        "authorization",
        "the Authorization header of a request to the HTTP server",
        lambda data: (found := credentials(data.decode("latin-1"))) and _USERS.accept(*found),
        (),
        [b"Basic b3BzOng=", b"Bearer x"],
    ),
    Target("web_config", "a web configuration file", _as_file(read_web_config), (ConfigError,), [_WEB.encode()]),
    Target(
        "evidence",
        "the file of evidence",
        _as_file(lambda file: EvidenceFile(file, str).load()),
        (),
        [_EVIDENCE.encode()],
        _JSON,
    ),
    Target(
        "driver_file",
        "the file in which the driver tells the source what it wants",
        _as_file(lambda file: read_driver_file(str(file))),
        (),
        [
            b'{"requests":[["orders-0",5,""],["orders-1",null,"gap"]],"next_due":[5,7]}',
            b'{"requests":[],"next_due":null}',
        ],
        _JSON,
    ),
    Target(
        "lease",
        "a file of a checkpoint's lease",
        lambda data: holder_of(data.decode("latin-1")),
        (),
        [Holder("h", 1, "t").to_json().encode()],
        _JSON,
    ),
    Target(
        "checkpoint_offset",
        "an offset in a checkpoint",
        _checkpoint,
        (CheckpointError,),
        [b"v1\n{}\n" + json.dumps(_OFFSET).encode()],
        _JSON,
    ),
    Target(
        "facts",
        "data that the tasks of a micro-batch send to each other",
        unpack_facts,
        (CheckpointError,),
        [packed for _, packed in pack_facts(_FACTS, 1)],
    ),
]
