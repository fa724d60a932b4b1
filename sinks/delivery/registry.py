"""Confluent framing: a magic byte, the id of a schema in a registry, Avro; by confluent-kafka's own serializers.

Law: a registry that does not answer is an error before anything is produced, so that the outbox keeps the event. When
events are read back it is a RegistryAwayError and never a record that is passed over: what cannot be decoded now is no
bad record. The schema is registered under `<topic>-value`, once a process; a schema id is asked for once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from txnwatch.state.model.errors import BadEventError, ConfigError, PassedOver, RegistryAwayError, SinkError
from txnwatch.state.model.incident import IncidentEvent

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

CONTENT_TYPE: Final = "application/vnd.confluent.avro"
_TIMEOUT_S: Final = 2.0
_FRAME: Final = 5
_ITS_WORD: Final = {404, 409, 422}  # not found, incompatible, invalid; anything else will pass


class RegistryCodec:
    """Events of one topic in Confluent framing, and back; what has no such framing is read as well."""

    def __init__(self, client_config: Mapping[str, Any], topic: str) -> None:
        """Prepares; nothing is asked of the registry yet.

        Args:
            client_config: what confluent-kafka's SchemaRegistryClient takes, `url` among it.
            topic: where the events go; the subject is named after it.

        Raises:
            ConfigError: confluent-kafka's registry client is not installed, or refuses the settings.
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
        self._url = str(client_config["url"]).rpartition("@")[2]
        subject = {"subject.name.strategy": topic_subject_name_strategy}
        try:
            # No retries of its own: the outbox tries again, and the micro-batch must go on.
            self._client: SchemaRegistryClient = SchemaRegistryClient(
                {"timeout": _TIMEOUT_S, "max.retries": 0, **client_config}
            )
            self._serialize: Any = AvroSerializer(self._client, schema_text(), lambda event, _: plain(event), subject)
            self._deserialize: Any = AvroDeserializer(
                self._client, schema_text(), lambda raw, _: event_of(raw), conf=subject
            )
        except (ValueError, TypeError) as exc:
            raise ConfigError(f"schema registry {self._url}: {exc}") from exc
        self._subject = f"{topic}-value"
        self._context = SerializationContext(topic, MessageField.VALUE)

    @property
    def encoding(self) -> Encoding:
        """For the sink."""
        return Encoding(self.encode, CONTENT_TYPE)

    def encode(self, event: IncidentEvent) -> bytes:
        """The event with its frame.

        Raises:
            RegistryAwayError: the registry does not answer.
            SinkError: it refuses the schema.
        """
        encoded: bytes = self._asking(lambda: self._serialize(event, self._context), "cannot register the schema")
        return encoded

    def decode(self, value: bytes) -> IncidentEvent:
        """An event in any of the three encodings.

        Raises:
            RegistryAwayError: it cannot be known now what it is.
            BadEventError: it is no event, or its schema is in no registry we know.
        """
        if value[:1] != CONFLUENT_MAGIC:
            return from_bytes(value)
        check_size(value)
        what = f"cannot read {value[:8]!r}..."
        if len(value) >= _FRAME:  # asked for first, so that an error of the registry is none of the record's
            schema_id = int.from_bytes(value[1:_FRAME], "big")
            try:
                self._asking(lambda: self._client.get_schema(schema_id, self._subject), what)
            except RegistryAwayError:
                raise
            except SinkError as exc:
                raise BadEventError(PassedOver.UNDECODABLE, str(exc)) from exc
        try:
            decoded: IncidentEvent = self._deserialize(value, self._context)
        except BadEventError:
            raise
        except Exception as exc:  # whatever a decoder makes of bytes that are none
            told = f"{what}: expected an incident event in Confluent framing: {str(exc)[:200]}"
            raise BadEventError(PassedOver.UNDECODABLE, told) from exc
        return decoded

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _asking(self, act: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 - the serializers are untyped
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415

        where = f"schema registry {self._url}"
        try:
            return act()
        except SchemaRegistryError as exc:
            told = f"{where}: {what}: {exc.error_message} (HTTP {exc.http_status_code}, code {exc.error_code})"
            error = SinkError if exc.http_status_code in _ITS_WORD else RegistryAwayError
            raise error(told) from exc
        except Exception as exc:  # its HTTP library's errors are no part of its interface
            raise RegistryAwayError(f"{where}: {what}: {type(exc).__name__}: {exc}") from exc
