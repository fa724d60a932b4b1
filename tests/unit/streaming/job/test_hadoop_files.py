"""The files of a lease through a Hadoop client: whatever it throws is an OSError or an empty content."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from txnwatch.streaming.job.checkpoint_lease import HadoopFiles

EXISTS = Py4JError("org.apache.hadoop.fs.FileAlreadyExistsException: /x/txnwatch-lease/000000000007")
REPLACED = Py4JError("org.apache.hadoop.fs.s3a.RemoteFileChangedException: Writing Object on x: Status Code: 412")
GONE = Py4JError("java.net.ConnectException: Connection refused")


class Client:
    """A Hadoop client in memory; `fails` maps the name of a call to its error."""

    def __init__(self, *names: str, **fails: Exception) -> None:
        self.fails, self.content = fails, dict.fromkeys(names, b"")
        self.options: list[tuple[str, str, bool]] = []

    def exists(self, path: str) -> bool:
        self._call("exists")
        return path.rpartition("/")[2] in {"txnwatch-lease", *self.content}

    def listStatus(self, _: str) -> list[Any]:  # noqa: N802 - Hadoop's name
        self._call("listStatus")
        return [SimpleNamespace(getPath=lambda name=name: self._named(name)) for name in self.content]

    def createFile(self, path: str) -> Builder:  # noqa: N802 - Hadoop's name
        return Builder(self, path)

    def create(self, path: str) -> Any:
        self._call("create")
        name = path.rpartition("/")[2]
        self.content[name] = b""
        return SimpleNamespace(write=lambda data: self._write(name, data), close=lambda: self._call("close"))

    def open(self, path: str) -> Any:
        self._call("open")
        content = self.content[path.rpartition("/")[2]]
        return SimpleNamespace(readAllBytes=lambda: content, close=lambda: None)

    def _named(self, name: str) -> Any:
        self._call("getPath")
        return SimpleNamespace(getName=lambda: name)

    def _write(self, name: str, data: bytearray) -> None:
        self._call("write")
        self.content[name] = bytes(data)

    def _call(self, name: str) -> None:
        if name in self.fails:
            raise self.fails[name]


@dataclass
class Builder:
    """Creates one file; with options that the file system may ignore (`opt`) or must know (`must`)."""

    client: Client
    path: str
    replaces: bool = True

    def overwrite(self, replaces: bool) -> Builder:  # noqa: FBT001 - Hadoop's signature
        return replace(self, replaces=replaces)

    def recursive(self) -> Builder:
        return self

    def opt(self, name: str, value: bool) -> Builder:  # noqa: FBT001 - Hadoop's signature
        self.client.options.append(("opt", name, value))
        return self

    def must(self, name: str, value: bool) -> Builder:  # noqa: FBT001 - Hadoop's signature
        self.client.options.append(("must", name, value))
        return self

    def build(self) -> Any:
        assert not self.replaces
        return self.client.create(self.path)


class HadoopPath(str):
    """A path; the configuration of this fake is its client."""

    __slots__ = ()

    def getFileSystem(self, conf: Client) -> Client:  # noqa: N802 - Hadoop's name
        return conf


def files(client: Client, checkpoint: str = "hdfs://n/x/") -> HadoopFiles:
    fs = SimpleNamespace(Path=HadoopPath)
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=fs))))
    state = SimpleNamespace(newHadoopConf=lambda: client)
    java_session = SimpleNamespace(sessionState=lambda: state)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm), _jsparkSession=java_session)
    return HadoopFiles(session, checkpoint)


def test_only_names_of_ascii_digits_are_numbers() -> None:
    client = Client("000000000003", "\u00b2", "7.tmp", "000000000012")
    assert files(client).numbers() == [3, 12]


@pytest.mark.parametrize("call", ["exists", "listStatus", "getPath"])
def test_a_listing_that_fails_at_any_call_is_an_error_of_the_file_system(call: str) -> None:
    client = Client("000000000003", **{call: GONE})
    with pytest.raises(OSError, match="Connection refused"):
        files(client).numbers()


def test_a_file_is_created_with_its_content_and_read() -> None:
    client = Client()
    assert files(client).create(7, "content")
    assert files(client).read(7) == "content"


@pytest.mark.parametrize("fails", [{"create": EXISTS}, {"close": EXISTS}, {"close": REPLACED}])
def test_a_file_that_exists_is_refused_at_its_creation_or_by_an_object_store_when_it_is_closed(
    fails: dict[str, Exception],
) -> None:
    assert not files(Client(**fails)).create(7, "content")


@pytest.mark.parametrize(("checkpoint", "kind"), [("s3a://bucket/x", "must"), ("hdfs://n/x", "opt")])
def test_s3_must_decide_whether_a_file_exists(checkpoint: str, kind: str) -> None:
    client = Client()
    assert files(client, checkpoint).create(7, "content")
    assert client.options == [(kind, "fs.option.create.conditional.overwrite", True)]


@pytest.mark.parametrize("call", ["create", "write", "close"])
def test_a_file_that_cannot_be_written_is_an_error(call: str) -> None:
    with pytest.raises(OSError, match="Connection refused"):
        files(Client(**{call: GONE})).create(7, "content")


def test_a_file_that_cannot_be_read_is_empty_and_bytes_that_are_no_text_are_replaced() -> None:
    client = Client(open=GONE)
    assert not files(client).read(7)
    client.fails.clear()
    client.content["000000000007"] = b"\xff{"
    assert files(client).read(7) == "\ufffd{"
