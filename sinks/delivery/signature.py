"""Signatures of records on the events topic and in Redis: HMAC-SHA256 with a key that only txnwatch has.

A signature covers the place (the cluster and the topic, or Redis), the record's key and its value. So a record that is
copied to another cluster, topic or key is invalid there. A record that is replayed at its own place has no effect,
because it has a lower sequence or an older time. Without a key nothing is signed and nothing is checked.

On the topic the signature is the end of the value: the last member of a JSON object, or bytes after an Avro datum,
which decoders ignore. It is not a header, because reading headers is not safe. confluent-kafka decodes the names of all
headers of a record in one call. If a name is not UTF-8, the call continues, returns a list with a missing entry and
leaves an exception pending. Python raises it at some later line, or never (then reading the list ends the process). No
`except` around that call helps.

Law: a key is never shown, neither in an error nor by `repr`; signatures are compared in constant time; code that reads
the events topic never calls `Message.headers`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from txnwatch.state.model.errors import ConfigError, SkipReason

_VERSION: Final = "v1"
_SIZE: Final = len(_VERSION) + 1 + 2 * hashlib.sha256().digest_size
_SHORTEST: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


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
        own = [f"{_VERSION}={_digest(one, place, key, value)}".encode() for one in self._keys]
        # All keys are compared, so that the duration does not show which one fits.
        return None if sum([hmac.compare_digest(given, one) for one in own]) else SkipReason.BAD_SIGNATURE


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


def mode_warning(path: Path) -> str | None:
    """A warning if other users have access to the file; None if not."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return None
    return f"--events-key-file {path} has mode {mode:04o}: a user who can read it can sign events; `chmod 600` it"


def _digest(key: bytes, place: str, record_key: str, value: bytes) -> str:
    parts = (place.encode(errors="surrogatepass"), record_key.encode(errors="surrogatepass"), value)
    signed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(key, b"txnwatch" + signed, hashlib.sha256).hexdigest()
