"""Decodes the answers of brokers with the classes of kafka-python.

Those classes also accept a null where the schema has none. The code that reads an answer relies on the schema, so such
an answer is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest

from txnwatch.state.model.errors import BrokerError, WireError

_WITH_NULL = {"string", "bytes", "records"}


class _Required(NamedTuple):
    """A field that must not be null, with such fields of its items; with `has_texts`, its items are not null either."""

    name: str
    of_items: tuple[_Required, ...]
    has_texts: bool


def decode_answer(asked: Any, body: memoryview | bytes) -> Any:
    """The answer to the request with the header `asked`, from the body of a response.

    Raises:
        WireError: the bytes do not follow the schema of that version.
    """
    response_class, version = asked.get_response_class(), asked.request_api_version
    try:
        answer = response_class.decode(body)
    except Exception as exc:  # invalid bytes can raise anything
        found = f"{len(body)} bytes that cannot be decoded: {type(exc).__name__}: {exc}"
        raise WireError(response_class.name, 0, found, f"an answer of version {version}") from exc
    missing = _null_in(answer, _required_of(response_class, version))
    if missing is not None:
        raise WireError(response_class.name, 0, f"null in {missing}", f"an answer of version {version}")
    return answer


def the_one(items: Sequence[Any]) -> Any:
    """The only item of a list in an answer to a question about one thing.

    Raises:
        BrokerError: the list has another number of items.
    """
    if len(items) != 1:
        raise BrokerError(f"expected an answer about one thing, found {len(items)}")
    return items[0]


def has_flexible_header(asked: Any) -> bool:
    """Whether the response header has tagged fields; that of ApiVersions never has them (KIP-511)."""
    if asked.request_api_key == ApiVersionsRequest.API_KEY:
        return False
    return bool(asked.get_response_class().flexible_version_q(asked.request_api_version))


def _null_in(value: Any, required: tuple[_Required, ...]) -> str | None:
    for name, of_items, has_texts in required:
        found = getattr(value, name)
        if found is None or (has_texts and None in found):
            return name
        if of_items:
            for item in found:
                missing = _null_in(item, of_items)
                if missing is not None:
                    return f"{name}.{missing}"
    return None


@cache
def _required_of(response_class: Any, version: int) -> tuple[_Required, ...]:
    return _required(response_class.fields, version)


def _required(fields: Mapping[str, Any], version: int) -> tuple[_Required, ...]:
    return tuple(
        _Required(
            name,
            _required(field.array_of.fields, version) if field.is_struct_array() else (),
            has_texts=field.is_array() and field.array_of.type_str in _WITH_NULL,
        )
        for name, field in fields.items()
        if field.for_version_q(version)
        and not field.nullable_for_version_q(version)
        and (field.is_array() or field.type_str in _WITH_NULL)
    )


# How many bytes to ask one broker for in one Fetch, so that an answer takes about a second. Pure: no I/O, no clock.
#
# A fast link gets the largest requests after a few answers. A slow link gets small ones: an answer of 16 MB at 1 MB/s
# would block everything else for 16 s. A quota leads to small requests too: if an answer exceeds the quota, the broker
# sends none of it, and throttles for as long as the whole answer would have taken.

LEAST, FIRST, MOST = 64 << 10, 2 << 20, 16 << 20
_WANTED_S, _WANTED_THROTTLE_S, _QUICK_S = 1.0, 0.25, 0.3
_GROWTH = 1.25


@dataclass(slots=True)
class Pace:
    """The size of the next Fetch of one connection, in bytes."""

    size: int = FIRST

    def answered(self, asked: int, received: int, took_s: float, throttled_s: float = 0.0) -> None:
        """Adjusts the size to an answer: its bytes, how long it took, and how long the broker throttles us for it."""
        wanted = float(self.size)
        if throttled_s > _WANTED_THROTTLE_S:
            wanted *= _WANTED_THROTTLE_S / throttled_s
        elif took_s > _WANTED_S:
            wanted = min(wanted, received * _WANTED_S / took_s)
        elif took_s < _QUICK_S and 2 * received > asked:
            wanted *= _GROWTH
        self.size = max(LEAST, min(int(wanted), MOST))
