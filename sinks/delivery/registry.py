"""Confluent framing: a magic byte, the id of a schema in a registry, Avro; with confluent-kafka's own serializers.

Apart: it gets its settings from librdkafka.py, because `sinks` may not import the settings.

Law: a registry that does not answer is an error before anything is produced, so the outbox keeps the event. When events
are read back, it is a RegistryUnavailableError, and the record is not skipped: a record that cannot be decoded now is
not invalid. The schema is registered under `<topic>-value`, once per client; each schema id is requested once. The
client reads certificate files only when it is made, so it is made again when they have changed. While the new files
cannot be used, the former client stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from txnwatch.sinks.delivery.encoding import (
    CONFLUENT_MAGIC,
    Encoding,
    check_size,
    event_of,
    from_bytes,
    plain,
    schema_text,
)
from txnwatch.state.model.errors import BadEventError, ConfigError, RegistryUnavailableError, SinkError, SkipReason
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.text import redacted, shown_url

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

CONTENT_TYPE: Final = "application/vnd.confluent.avro"
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
            raise ConfigError(f"a schema registry needs `pip install 'txnwatch[registry]'`: {exc}") from exc
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
        return Encoding(self.encode, CONTENT_TYPE)

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
        check_size(value)
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
        found = path.stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)
