"""Incident events as bytes (flat JSON, Avro single-object encoding, Confluent framing), and the signature of a record.

One Avro schema defines all three encodings. Confluent framing is a magic byte, the id of a schema in a registry, and
Avro; confluent-kafka's own serializers make it.

Law: a registry that does not answer is an error before anything is produced, so the outbox keeps the event. When events
are read back, it is a RegistryUnavailableError, and the record is not skipped: a record that cannot be decoded now is
not invalid.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fastavro
import msgspec
from fastavro.schema import fingerprint, to_parsing_canonical_form

from txnwatch.state.incidents.heartbeat import CONTENT_TYPE, EVENT_TYPE, Heartbeat
from txnwatch.state.incidents.value_rules import problem_of
from txnwatch.state.model.errors import (
    BadEventError,
    ConfigError,
    RegistryUnavailableError,
    SinkError,
    SkipReason,
    install_command,
)
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import rfc3339
from txnwatch.state.text import read_json, redacted, shown_url

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient


SPEC_VERSION: Final = "1.0"
_SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
_SHOWN: Final = 200
MAX_BYTES: Final = 4 * 1024 * 1024  # brokers accept 1 MiB by default

CONFLUENT_MAGIC: Final = b"\x00"


class Encoding(NamedTuple):
    """How events become a record's value, and the content type of the value."""

    encode: Callable[[IncidentEvent], bytes]
    content_type: str


@cache
def schema_text() -> str:
    """The schema as it is published."""
    return (files("txnwatch.sinks.delivery") / "incident_event.avsc").read_text()


@cache
def schema() -> dict[str, Any]:
    """The parsed schema."""
    parsed = fastavro.parse_schema(json.loads(schema_text()))
    assert isinstance(parsed, dict)
    return parsed


@cache
def _single_object_header() -> bytes:
    return _header_of(schema_text())


def _header_of(text: str) -> bytes:
    hexadecimal = fingerprint(to_parsing_canonical_form(json.loads(text)), "CRC-64-AVRO")
    return _SINGLE_OBJECT_MAGIC + bytes.fromhex(hexadecimal)


@cache
def _writers() -> dict[bytes, Any]:
    """The schemas that events may have been written with, by header; old schemas stay in the package."""
    texts = [path.read_text() for path in files("txnwatch.sinks.delivery").iterdir() if path.name.endswith(".avsc")]
    return {_header_of(text): fastavro.parse_schema(json.loads(text)) for text in texts}


def to_json(event: IncidentEvent) -> bytes:
    """The event as one line of JSON with the schema's field names."""
    return json.dumps(plain(event), separators=(",", ":")).encode()


def to_avro(event: IncidentEvent) -> bytes:
    """The event in Avro single-object encoding: marker, schema fingerprint, body."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema(), plain(event))
    return _single_object_header() + body.getvalue()


def from_bytes(value: bytes) -> IncidentEvent:
    """An event from either encoding.

    Raises:
        BadEventError: the value is neither JSON nor Avro of a known schema, or not valid for an event.
    """
    if value[:1] == CONFLUENT_MAGIC:
        message = "found Confluent framing: set --schema-registry-url, so that its schema can be read"
        raise BadEventError(SkipReason.UNDECODABLE, message)
    _check_size(value)
    try:
        raw = _avro(value) if value.startswith(_SINGLE_OBJECT_MAGIC) else read_json(value)
    except Exception as exc:  # invalid Avro can raise anything
        why = f"expected an incident event in JSON or Avro, found {value[:40]!r}...: {str(exc)[:_SHOWN]}"
        raise BadEventError(SkipReason.UNDECODABLE, why) from exc
    return event_of(raw)


def _check_size(value: bytes) -> None:
    """Checks the size before the value is decoded.

    Raises:
        BadEventError: it is too large for an event.
    """
    if len(value) > MAX_BYTES:
        message = f"expected an incident event of at most {MAX_BYTES} bytes, found {len(value)}"
        raise BadEventError(SkipReason.TOO_LARGE, message)


def _avro(value: bytes) -> Any:  # noqa: ANN401 - any decoded value
    size = len(_single_object_header())
    body = io.BytesIO(value[size:])
    raw = fastavro.schemaless_reader(body, _writers()[value[:size]], schema())
    if body.read(1):
        raise ValueError("found extra bytes after the event")
    return raw


# Describes the type when the module is loaded: msgspec ends the process if two threads do that at the same moment.
_DESCRIBED: Final = msgspec.json.Decoder(IncidentEvent)


def event_of(raw: Any) -> IncidentEvent:  # noqa: ANN401 - any decoded value
    """An event from its fields.

    Fields of a later version are left out. Fields that an earlier version lacks get their defaults.

    Raises:
        BadEventError: it does not have the types of the model (state/model/incident.py), or a value is not valid for an
            event (state/incidents/value_rules.py).
    """
    try:
        event = msgspec.convert(raw, IncidentEvent)
    except (msgspec.ValidationError, UnicodeEncodeError) as exc:  # half of a surrogate pair cannot be compared
        raise BadEventError(SkipReason.INVALID, f"expected an incident event: {_mismatch(str(exc))}") from exc
    problem = problem_of(event)
    if problem is not None:
        raise BadEventError(SkipReason.INVALID, f"expected an incident event: {problem}")
    return event


def _mismatch(problem: str) -> str:
    """The message of msgspec, with the name of the field first; it can contain text of another writer."""
    reason, _, path = problem.partition(" - at `$")
    field = path.strip(".`")
    return f"{field} has an invalid value: {reason[:_SHOWN]!a}" if field else ascii(reason[:_SHOWN])


def cloud_event_attributes(event: IncidentEvent) -> dict[str, str]:
    """The attributes of CloudEvents 1.0, by their names."""
    return {
        "specversion": SPEC_VERSION,
        "id": event.event_id,
        "source": f"/kafka/{event.cluster_id}",
        "type": event.event_type,
        "subject": event.subject,
        "time": rfc3339(event.time_ms),
    }


def cloud_event_headers(event: IncidentEvent, content_type: str) -> dict[str, str | bytes | None]:
    """CloudEvents 1.0, Kafka binding, binary mode."""
    attributes = cloud_event_attributes(event).items()
    return {**{f"ce_{name}": value for name, value in attributes}, "content-type": content_type}


def heartbeat_headers(heartbeat: Heartbeat) -> dict[str, str | bytes | None]:
    """The same headers for a watcher's heartbeat."""
    return {
        "ce_specversion": SPEC_VERSION,
        "ce_id": f"{heartbeat.key}-{heartbeat.time_ms}",
        "ce_source": f"/kafka/{heartbeat.cluster_id}",
        "ce_type": EVENT_TYPE,
        "ce_subject": heartbeat.instance,
        "ce_time": rfc3339(heartbeat.time_ms),
        "content-type": CONTENT_TYPE,
    }


def plain(event: IncidentEvent) -> dict[str, Any]:
    """The event as plain values, with the names of its fields: JSON, and a record of the Avro schema."""
    raw: dict[str, Any] = msgspec.to_builtins(event)
    return raw


FORMATS: Final = {
    "json": Encoding(to_json, "application/json"),
    "avro": Encoding(to_avro, "application/avro"),
}


# Signatures of records on the events topic and in Redis: HMAC-SHA256 with a key that only txnwatch has.
#
# A signature covers the place (the cluster and the topic, or Redis), the record's key and its value. So a record that
# is copied to another cluster, topic or key is invalid there. A record that is replayed at its own place has no effect,
# because it has a lower sequence or an older time. Without a key nothing is signed and nothing is checked.
#
# On the topic the signature is the end of the value: the last member of a JSON object, or bytes after an Avro datum,
# which decoders ignore. It is not a header, because reading headers is not safe. confluent-kafka decodes the names of
# all headers of a record in one call. If a name is not UTF-8, the call continues, returns a list with a missing entry
# and leaves an exception pending. Python raises it at some later line, or never (then reading the list ends the
# process). No `except` around that call helps.
#
# Law: a key is never shown, neither in an error nor by `repr`; signatures are compared in constant time; code that
# reads the events topic never calls `Message.headers`.

_VERSION: Final = "v1"
_SIZE: Final = len(_VERSION) + 1 + 2 * hashlib.sha256().digest_size
_SHORTEST: Final = 32


class _Ending(NamedTuple):
    """The bytes around a signature at the end of a value, and the end of an unsigned value."""

    before: bytes
    after: bytes
    unsigned: bytes


_JSON: Final = _Ending(b',"signature":"', b'"}', b"}")
_BINARY: Final = _Ending(b"txnwatch-signature:", b"", b"")


def with_signature(value: bytes, signature: str) -> bytes:
    """A record's value with its signature: JSON stays valid JSON, and an Avro datum stays at the front."""
    ending = _ending(value)
    return value.removesuffix(ending.unsigned) + ending.before + signature.encode() + ending.after


def without_signature(value: bytes) -> tuple[bytes, bytes | None]:
    """A record's value before it was signed, and the signature; None if there is none."""
    ending = _ending(value)
    start = len(value) - len(ending.before) - _SIZE - len(ending.after)
    if start < 0 or not value.startswith(ending.before, start) or not value.endswith(ending.after):
        return value, None
    first = start + len(ending.before)
    return value[:start] + ending.unsigned, value[first : first + _SIZE]


def _ending(value: bytes) -> _Ending:
    return _JSON if value.startswith(b"{") else _BINARY


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one file: the first signs, each of them verifies."""

    _keys: tuple[bytes, ...] = field(repr=False)

    def sign(self, place: str, key: str, value: bytes) -> str:
        """The signature of a record."""
        return f"{_VERSION}={_digest(self._keys[0], place, key, value)}"

    def problem(self, place: str, key: str, value: bytes, signature: str | bytes | None) -> SkipReason | None:
        """What is wrong with a record's signature; None if it is valid."""
        if signature is None:
            return SkipReason.UNSIGNED
        given = signature if isinstance(signature, bytes) else signature.encode(errors="replace")
        own = [f"{_VERSION}={_digest(signing_key, place, key, value)}".encode() for signing_key in self._keys]
        # All keys are compared, so that the duration does not show which one fits.
        return None if sum([hmac.compare_digest(given, expected) for expected in own]) else SkipReason.BAD_SIGNATURE


def topic_place(cluster_id: str, topic: str) -> str:
    """The place of an events topic, for its signatures."""
    return f"topic:{cluster_id}:{topic}"


def redis_place(cluster_id: str) -> str:
    """The place of a cluster's keys in Redis, for their signatures."""
    return f"redis:{cluster_id}"


def read_keys(path: Path, read: Callable[[str], str] = str) -> Keys:
    """The keys in a file: one per line, at least 32 characters; blank lines and lines that begin with # are ignored.

    Args:
        path: the file.
        read: returns the key for a line, which may refer to another file or to a variable.

    Raises:
        ConfigError: the file cannot be read, or has no key, or a key is too short.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        raise ConfigError(f"--events-key-file {path}: {exc.strerror}") from exc
    given = (line.strip() for line in lines if line.strip() and not line.strip().startswith(b"#"))
    keys = tuple(os.fsencode(read(os.fsdecode(line))) for line in given)
    if not keys:
        raise ConfigError(f"--events-key-file {path}: expected a key on a line of its own, found none")
    short = [str(number) for number, key in enumerate(keys, 1) if len(key) < _SHORTEST]
    if short:
        message = f"key {', '.join(short)} is shorter: create one with `openssl rand -hex 32`"
        raise ConfigError(f"--events-key-file {path}: expected keys of at least {_SHORTEST} characters; {message}")
    return Keys(keys)


def _digest(key: bytes, place: str, record_key: str, value: bytes) -> str:
    parts = (place.encode(errors="surrogatepass"), record_key.encode(errors="surrogatepass"), value)
    signed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(key, b"txnwatch" + signed, hashlib.sha256).hexdigest()


# Confluent framing. The schema is registered under `<topic>-value`, once per client; each schema id is requested once.
# The client reads certificate files only when it is made, so it is made again when they have changed. While the new
# files cannot be used, the former client stays.

_CONFLUENT_TYPE: Final = "application/vnd.confluent.avro"
_TIMEOUT_S: Final = 2.0
_FRAME: Final = 5
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_ITS_WORD: Final = {404, 409, 422}  # not found, incompatible, invalid; any other status is temporary


class RegistryCodec:
    """Encodes and decodes the events of one topic in Confluent framing; decodes the other formats as well."""

    def __init__(self, client_config: Mapping[str, Any], topic: str) -> None:
        """Creates the serializers, without a request to the registry.

        Args:
            client_config: what confluent-kafka's SchemaRegistryClient takes, including `url`.
            topic: where the events go; the subject is named after it.

        Raises:
            ConfigError: confluent-kafka's registry client is not installed, or refuses the settings.
        """
        # No retries here: the outbox retries, and the micro-batch must not wait.
        self._config = {"timeout": _TIMEOUT_S, "max.retries": 0, **client_config}
        self._url = shown_url(str(client_config["url"]))
        self._topic = topic
        self._subject = f"{topic}-value"
        self._files = [Path(str(client_config[name])) for name in _FILES if name in client_config]
        self._connect()

    def _connect(self) -> None:
        """Makes the client and its serializers.

        Raises:
            ConfigError: as the constructor.
        """
        try:
            from confluent_kafka.schema_registry import (  # noqa: PLC0415 - an extra
                SchemaRegistryClient,
                topic_subject_name_strategy,
            )
            from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer  # noqa: PLC0415
            from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415
        except ImportError as exc:
            raise ConfigError(f"a schema registry needs `{install_command('registry')}`: {exc}") from exc
        subject, stamps = {"subject.name.strategy": topic_subject_name_strategy}, self._stamps()
        try:
            client = SchemaRegistryClient(self._config)
            serialize = AvroSerializer(client, schema_text(), lambda event, _: plain(event), subject)
            deserialize = AvroDeserializer(client, schema_text(), lambda raw, _: event_of(raw), conf=subject)
        except OSError as exc:  # also the errors of TLS
            named = " and ".join(map(str, self._files)) or "SSL_CERT_FILE"
            problem = f"expected certificates in PEM in {named}, found: {exc}"
            raise ConfigError(f"schema registry {self._url}: {problem}") from exc
        except (ValueError, TypeError) as exc:
            raise ConfigError(f"schema registry {self._url}: {redacted(str(exc))}") from exc
        self._client: SchemaRegistryClient = client
        self._serialize: Any = serialize
        self._deserialize: Any = deserialize
        self._context = SerializationContext(self._topic, MessageField.VALUE)
        self._used = stamps

    def _renew(self) -> None:
        """Makes the client again if a certificate file has changed."""
        if self._stamps() == self._used:
            return
        former = self._client
        with suppress(ConfigError):  # somebody may be replacing the files at this moment
            self._connect()
            former.close()

    def _stamps(self) -> list[tuple[int, ...]]:
        return [_stamp(path) for path in self._files]

    @property
    def encoding(self) -> Encoding:
        """The encoding for the sink."""
        return Encoding(self.encode, _CONFLUENT_TYPE)

    def encode(self, event: IncidentEvent) -> bytes:
        """The event in Confluent framing.

        Raises:
            RegistryUnavailableError: the registry does not answer.
            SinkError: the registry refuses the schema.
        """
        encoded: bytes = self._asking(lambda: self._serialize(event, self._context), "cannot register the schema")
        return encoded

    def decode(self, value: bytes) -> IncidentEvent:
        """An event in any of the three encodings.

        Raises:
            RegistryUnavailableError: the registry does not answer, so the value cannot be decoded now.
            BadEventError: it is not an event, or the registry does not have its schema.
        """
        if value[:1] != CONFLUENT_MAGIC:
            return from_bytes(value)
        _check_size(value)
        what = f"cannot read {value[:8]!r}..."
        if len(value) >= _FRAME:  # requested first, so that an error of the registry differs from an invalid record
            schema_id = int.from_bytes(value[1:_FRAME], "big")
            try:
                self._asking(lambda: self._client.get_schema(schema_id, self._subject), what)
            except RegistryUnavailableError:
                raise
            except SinkError as exc:
                raise BadEventError(SkipReason.UNDECODABLE, str(exc)) from exc
        try:
            decoded: IncidentEvent = self._deserialize(value, self._context)
        except BadEventError:
            raise
        except Exception as exc:  # a decoder can raise anything on invalid bytes
            message = f"{what}: expected an incident event in Confluent framing: {str(exc)[:200]}"
            raise BadEventError(SkipReason.UNDECODABLE, message) from exc
        return decoded

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _asking(self, act: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 - the serializers are untyped
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415

        where = f"schema registry {self._url}"
        self._renew()
        try:
            return act()
        except SchemaRegistryError as exc:
            reason = redacted(str(exc.error_message))
            message = f"{where}: {what}: {reason} (HTTP {exc.http_status_code}, code {exc.error_code})"
            error = SinkError if exc.http_status_code in _ITS_WORD else RegistryUnavailableError
            raise error(message) from exc
        except Exception as exc:  # errors of its HTTP library are not part of its interface
            raise RegistryUnavailableError(f"{where}: {what}: {type(exc).__name__}: {redacted(str(exc))}") from exc


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file; empty while there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns)
