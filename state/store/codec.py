"""The stored types of the state: producers and the shared state of a bucket, as bytes.

state/model/serializer.py encodes them by their types. A stored producer and a part of the shared
state have no version of their own: the log entry that contains them has one, which covers them (bucket_log.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from txnwatch.state.detection.bucket_state import BucketState, SharedState
from txnwatch.state.model.serializer import PartSerializer
from txnwatch.state.model.transaction import ProducerState

_PRODUCER = PartSerializer[ProducerState](ProducerState)
_HINTS = get_type_hints(SharedState)
_SHARED = {field.name: PartSerializer[Any](_HINTS[field.name]) for field in fields(SharedState)}
STORED_PARTS = (ProducerState, SharedState)

encode_producer = _PRODUCER.encode
decode_producer = _PRODUCER.decode


def encode_shared(bucket: SharedState) -> dict[str, bytes]:
    """The shared state of a bucket, each field by its name; equal values have equal bytes."""
    return {name: part.encode(_in_order(getattr(bucket, name))) for name, part in _SHARED.items()}


def decode_shared(bucket: BucketState, parts: Mapping[str, bytes]) -> None:
    """Sets the fields that `encode_shared` wrote in a bucket."""
    for name, packed in parts.items():
        setattr(bucket, name, _SHARED[name].decode(packed))


def _in_order(value: object) -> object:
    return sorted(value) if isinstance(value, set) else value
