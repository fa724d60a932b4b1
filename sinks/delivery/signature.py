"""A signature for what stands on the events topic or in Redis: HMAC-SHA256 with a key that only txnwatch has.

It covers the place (the cluster and the topic, or Redis), the record's key and its value, so that a record that is
copied to another cluster, topic or key does not pass there. What is replayed at its own place says nothing new: a
lower sequence, or an older time. Without a key nothing is signed and nothing is checked.

On the topic the signature is the end of the value: the last member of a JSON object, or bytes behind an Avro datum,
which decoders leave alone. It is not a header. confluent-kafka decodes the names of all headers of a record in one call
that does not stop at a name that is not UTF-8: it returns a list with a hole and leaves an exception pending, which
Python raises at some later line, or never (then reading the list ends the process). No `except` around that call holds.

Law: a key is never shown, neither in an error nor by `repr`; signatures are compared in constant time; nothing that
reads the events topic calls `Message.headers`.
"""

from __future__ import annotations

import hashlib
import hmac
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from txnwatch.state.model.errors import ConfigError, PassedOver

_VERSION: Final = "v1"
_SIZE: Final = len(_VERSION) + 1 + 2 * hashlib.sha256().digest_size
_SHORTEST: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class _Ending(NamedTuple):
    """How a signature stands at the end of a value, and what the value ends with without one."""

    before: bytes
    after: bytes
    unsigned: bytes


_JSON: Final = _Ending(b',"signature":"', b'"}', b"}")
_BINARY: Final = _Ending(b"txnwatch-signature:", b"", b"")


def with_signature(value: bytes, signature: str) -> bytes:
    """A record's value with its signature: JSON stays JSON, and an Avro datum stays in front."""
    ending = _ending(value)
    return value.removesuffix(ending.unsigned) + ending.before + signature.encode() + ending.after


def without_signature(value: bytes) -> tuple[bytes, bytes | None]:
    """A record's value as it was before it was signed, and the signature; None where there is none."""
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

    def problem(self, place: str, key: str, value: bytes, signature: str | bytes | None) -> PassedOver | None:
        """What is wrong with a record's signature, None for nothing."""
        if signature is None:
            return PassedOver.UNSIGNED
        given = signature if isinstance(signature, bytes) else signature.encode(errors="replace")
        own = [f"{_VERSION}={_digest(one, place, key, value)}".encode() for one in self._keys]
        # Each is compared, so that the time tells nothing about which one fits.
        return None if sum([hmac.compare_digest(given, one) for one in own]) else PassedOver.BAD_SIGNATURE


def topic_place(cluster_id: str, topic: str) -> str:
    """The place of an events topic."""
    return f"topic:{cluster_id}:{topic}"


def redis_place(cluster_id: str) -> str:
    """The place of a cluster's keys in Redis."""
    return f"redis:{cluster_id}"


def read_keys(path: Path) -> Keys:
    """The keys in a file: one a line, at least 32 characters; blank lines and lines that begin with # are none.

    Raises:
        ConfigError: the file cannot be read, or holds no key or one that is too short.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        raise ConfigError(f"--events-key-file {path}: {exc.strerror}") from exc
    keys = tuple(line.strip() for line in lines if line.strip() and not line.strip().startswith(b"#"))
    if not keys:
        raise ConfigError(f"--events-key-file {path}: expected a key on a line of its own, found none")
    short = [str(number) for number, key in enumerate(keys, 1) if len(key) < _SHORTEST]
    if short:
        told = f"key {', '.join(short)} is shorter: `openssl rand -hex 32` makes one"
        raise ConfigError(f"--events-key-file {path}: expected keys of at least {_SHORTEST} characters; {told}")
    return Keys(keys)


def mode_warning(path: Path) -> str | None:
    """What is wrong with who may read the file, None for nothing."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return None
    return f"--events-key-file {path} has mode {mode:04o}: whoever reads it can sign events; `chmod 600` it"


def _digest(key: bytes, place: str, record_key: str, value: bytes) -> str:
    parts = (place.encode(errors="surrogatepass"), record_key.encode(errors="surrogatepass"), value)
    signed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(key, b"txnwatch" + signed, hashlib.sha256).hexdigest()
