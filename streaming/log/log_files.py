"""Opens a file that a user gives to `txnwatch decode`, and finds out what it is.

Apart: it opens files and knows no rows.

Law: nothing is allocated for a size that another program wrote. A regular file is mapped; a stream or the content of a
gzip file is copied to a temporary file up to `LARGEST`, the largest segment that a broker can have.

Law: the name decides what a file is, because an index has no mark of its own. Text is known by its content, and so is a
file with another name.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import itertools
import mmap
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from txnwatch.state.model.errors import ConfigError, InputError, WireError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, is_topic_name
from txnwatch.streaming.log.coordinator_records import logged_record
from txnwatch.streaming.wire.internal_topics import decode_value
from txnwatch.streaming.wire.printed_batches import is_dump_of_kafka
from txnwatch.streaming.wire.record_batch import BatchWalker, records, walk
from txnwatch.streaming.wire.snapshot_file import decode_snapshot

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc has it since Python 3.12

LARGEST = (1 << 31) - 1
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b\x08"
_SAMPLE = 1 << 16
_BATCHES_TRIED = 100
_STANDARD_INPUT = "-"


class FileKind(StrEnum):
    """What a file is, in words for messages."""

    SEGMENT = "a segment of a log"
    SNAPSHOT = "a snapshot of the producer state"
    TEXT = "text"


# Endings that a broker or a person adds to the name of such a file.
_ADDED = (".gz", ".deleted", ".cleaned", ".swap", ".tmp", ".bak", ".copy")
_THE_PARTITION = "decode a .snapshot or .log file in the directory of a partition"
_THE_SEGMENT = "decode the .log file of the same name"
_CONSOLE = (
    "if the console consumer has printed them, add --formatter "
    "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter to its command; one value alone can be given as "
    "hexadecimal with --value"
)
# Other files that a broker writes: what they are, and what to do.
_NOT_DECODED = (
    (r".*\.(time)?index", "an index of a segment, which has no transactions", _THE_SEGMENT),
    (r".*\.txnindex", "an index of aborted transactions", f"{_THE_SEGMENT}, which has their markers"),
    (r"leader-epoch-checkpoint", "the first offset of each leader epoch, as text", "read it with cat"),
    (r"partition\.metadata", "the id of the topic, as text", "read it with cat"),
    (r"meta\.properties", "the ids of the cluster and of the broker, as text", "read it with cat"),
    (r".*-offset-checkpoint", "one offset for each partition of the broker, as text", "read it with cat"),
    (r"\.(lock|kafka_cleanshutdown)", "a mark of the broker, which has no records", _THE_PARTITION),
    (r"quorum-state", "the last vote of a controller (KRaft), as text", "read it with cat"),
    (
        r".*\.checkpoint",
        "a snapshot of the cluster's metadata (KRaft), which has no transactions",
        f"run kafka-dump-log.sh --cluster-metadata-decoder --files FILE, or {_THE_PARTITION}",
    ),
)
# Archives by their first bytes, and the program that unpacks them.
_ARCHIVES = (
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", "zstd -d"),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4", "lz4 -d"),
    (0, b"\xfd7zXZ\0", "compressed with xz", "xz -d"),
    (0, b"BZh", "compressed with bzip2", "bzip2 -d"),
    (0, b"PK\x03\x04", "a zip archive", "unzip"),
    (257, b"ustar", "a tar archive", "tar -x"),
)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_BASE_OFFSET = re.compile(r"(\d{1,20})\.")
_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<number>\d{1,9})(?:\.[\w-]+-(?:delete|future|stray))?")


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that is open to decode.

    Attributes:
        name: as the user gave it; "standard input" for `-`.
        data: its content, without gzip.
        cut: why the content ends early; None if it is whole.
        path: None for standard input.
    """

    name: str
    data: memoryview | bytes
    cut: str | None = None
    path: Path | None = None

    @property
    def bare_name(self) -> str:
        """The name that the broker gave the file; empty if that is not known."""
        name = self.path.name if self.path is not None else ""
        while name.endswith(_ADDED):
            name = name.rpartition(".")[0]
        return name

    @property
    def base_offset(self) -> int | None:
        """The base offset in the name; None if it has none."""
        match = _BASE_OFFSET.match(self.bare_name)
        return int(match[1]) if match is not None else None

    @property
    def log_partition(self) -> int | None:
        """The partition of `__transaction_state` in whose folder the file is; None in another folder."""
        topic, number = self._folder()
        return number if topic == TRANSACTION_STATE_TOPIC else None

    @property
    def partition(self) -> TopicPartition | None:
        """The partition in whose folder the file is; None in another folder."""
        topic, number = self._folder()
        return TopicPartition(topic, number) if number is not None and is_topic_name(topic) else None

    def _folder(self) -> tuple[str, int | None]:
        folder = self.path.absolute().parent.name if self.path is not None else ""
        match = _PARTITION_FOLDER.fullmatch(folder)
        return (match["topic"], int(match["number"])) if match is not None else (folder, None)


def open_file(name: str) -> GivenFile:
    """Opens a file, or standard input for `-`.

    Raises:
        ConfigError: there is no such file, or it may not be read.
        InputError: it is too large, or no gzip file although it begins like one.
    """
    if name == _STANDARD_INPUT:
        return _unpacked(GivenFile("standard input", _copied("standard input", sys.stdin.buffer)))
    path = Path(name)
    try:
        if path.is_dir():
            raise ConfigError(
                f"--file {name}: expected a file, found a directory. In the directory of a partition, the newest "
                ".snapshot file has its open transactions"
            )
        with path.open("rb") as file:
            data = _mapped(file) if path.is_file() else _copied(name, file)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the name
        raise ConfigError(f"--file {name}: {getattr(exc, 'strerror', None) or exc}") from exc
    return _unpacked(GivenFile(name, data, path=path))


def _mapped(file: BinaryIO) -> memoryview | bytes:
    if not file.seek(0, 2):
        return b""
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _copied(name: str, stream: BinaryIO) -> memoryview | bytes:
    return _stored(name, iter(lambda: stream.read(_CHUNK), b""))


def _stored(name: str, chunks: Iterator[bytes]) -> memoryview | bytes:
    """The chunks as one content; they are in a temporary file, which the system removes."""
    size = 0
    try:
        with tempfile.TemporaryFile() as file:
            for chunk in chunks:
                size += len(chunk)
                if size > LARGEST:
                    raise InputError(
                        f"{name}: expected at most {LARGEST} bytes, as a segment has, found more: split it"
                    )
                file.write(chunk)
            file.flush()
            return _mapped(file)
    except OSError as exc:
        raise InputError(f"{name}: could not be copied to {tempfile.gettempdir()}: {exc.strerror}") from exc


def _unpacked(given: GivenFile) -> GivenFile:
    """The file without gzip; if the gzip file is cut or damaged, what is before that."""
    if bytes(given.data[: len(_GZIP)]) != _GZIP:
        return given
    cut: list[str] = []
    data = _stored(given.name, _gunzipped(given, cut))
    if cut and not data:
        raise InputError(f"{given.name}: expected a gzip file, found a damaged one ({cut[0]}): copy it again")
    return GivenFile(given.name, data, cut[0] if cut else None, given.path)


def _gunzipped(given: GivenFile, cut: list[str]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BufferedReader(_BufferFile(given.data)), mode="rb") as packed:
        while True:
            try:
                chunk = packed.read1(_CHUNK)
            except (EOFError, OSError, zlib.error) as exc:
                cut.append(str(exc))
                return
            if not chunk:
                return
            yield chunk


class _BufferFile(io.RawIOBase):
    """A buffer as a file, without a copy."""

    def __init__(self, data: memoryview | bytes) -> None:
        self._rest = memoryview(data)

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """The next bytes."""
        target = memoryview(buffer)
        part = self._rest[: len(target)]
        target[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)


def kind_of(given: GivenFile) -> FileKind:
    """What the file is.

    Raises:
        InputError: a file that is known and has nothing to decode, or a file that is not known.
    """
    if given.bare_name.endswith(".snapshot"):
        return FileKind.SNAPSHOT
    _refuse_others(given)
    kind = _by_content(given.data)
    if kind is None and (not given.data or given.bare_name.endswith(".log")):
        return FileKind.SEGMENT
    if kind is None and _begins_with_value(bytes(given.data[:_SAMPLE])):
        raise InputError(
            f"{given.name}: found bytes that begin as a value of {TRANSACTION_STATE_TOPIC} does: {_CONSOLE}"
        )
    if kind is None:
        raise InputError(
            f"{given.name}: expected {FileKind.SEGMENT}, {FileKind.SNAPSHOT} or {FileKind.TEXT}, found "
            f"{len(given.data)} bytes that begin with {bytes(given.data[:16]).hex(' ')}: {_THE_PARTITION}"
        )
    return kind


def _begins_with_value(sample: bytes) -> bool:
    """Whether the content begins with a value of the coordinators' log, as the console consumer prints it."""
    for end in itertools.islice(re.finditer(b"\n", sample), _BATCHES_TRIED):
        with contextlib.suppress(WireError):
            decode_value(sample[: end.start()])
            return True
    return False


def _refuse_others(given: GivenFile) -> None:
    for pattern, what, advice in _NOT_DECODED:
        if re.fullmatch(pattern, given.bare_name):
            raise InputError(f"{given.name}: found {what}: {advice}")
    for at, mark, what, program in _ARCHIVES:
        if bytes(given.data[at : at + len(mark)]) == mark:
            raise InputError(f"{given.name}: found a file that is {what}: unpack it first ({program})")


def _by_content(data: memoryview | bytes) -> FileKind | None:
    if _is_text(data) or is_dump_of_kafka(bytes(data[:_SAMPLE])):
        return FileKind.TEXT
    with contextlib.suppress(WireError):
        decode_snapshot(data)
        return FileKind.SNAPSHOT
    return FileKind.SEGMENT if begins_with_batch(data) else None


def begins_with_batch(data: memoryview | bytes) -> bool:
    """Whether the content begins with a whole batch, of any format."""
    try:
        return next(BatchWalker().runs(data, joined=False), None) is not None
    except WireError:
        return False


def _is_text(data: memoryview | bytes) -> bool:
    """Whether the content is text, to judge from its beginning."""
    sample = bytes(data[:_SAMPLE])
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    if not sample or _CONTROL.search(sample):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def text_of(data: memoryview | bytes) -> str:
    """The content as text; a redirect of PowerShell writes UTF-16."""
    raw = bytes(data)
    is_utf_16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if is_utf_16 else "utf-8-sig", errors="replace")


def holds_coordinator_records(data: memoryview | bytes) -> bool:
    """Whether the first records of a segment are those of `__transaction_state`.

    A broker writes that log without producer ids and compression. So a batch of a user with one of them is not read.
    """
    try:
        for at, header in itertools.islice(walk(data), _BATCHES_TRIED):
            if header.is_control or header.is_transactional or header.producer_id >= 0 or header.compression:
                return False
            are_theirs = [logged_record(record) is not None for record in records(data, at, header)]
            if are_theirs:
                return all(are_theirs)
    except WireError:
        pass
    return False
