"""`txnwatch decode --file`: what each file shows, and what is said about a file that cannot be read."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from support.batches import a_batch, a_marker, a_record, an_old_entry
from support.snapshot_files import IDLE_PRODUCER, PRODUCER, a_snapshot
from support.transaction_log import a_key, a_value
from txnwatch.cli import decode
from txnwatch.cli.main import main
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.log import log_files
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

VALUE = TransactionLogValue(1, 9, 3, 60_000, TransactionState.ONGOING, (("orders", (0,)),), 1, 1)
LOGGED = a_batch(
    producer_id=-1, transactional=False, records=[a_record(key=a_key("app"), value=a_value(VALUE))]
) + a_batch(1, producer_id=-1, transactional=False, records=[a_record(key=a_key("gone"), value=None)])
DATA = a_batch(count=2) + a_marker(2)
NAME = "00000000000000001000"
SECOND = (9, 0, 5, 1_060, 0, 1_700_000_000_000, -1, 1_020)
SNAPSHOT = a_snapshot([IDLE_PRODUCER, PRODUCER, SECOND])
METADATA = b"version: 0\ntopic_id: n4KqPpjbT2Wydc0rQq3Vhw"


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(content)
    return path


def decoded(capsys: pytest.CaptureFixture[str], path: Path | str, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["decode", "--file", str(path), "--format", "json", *arguments]) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def failed(capsys: pytest.CaptureFixture[str], path: Path | str, *arguments: str, code: int = 1) -> str:
    assert main(["decode", "--file", str(path), *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err


def test_a_snapshot_shows_the_oldest_open_transaction_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = put(tmp_path / f"{NAME}.snapshot", SNAPSHOT)
    rows = decoded(capsys, path)["rows"]
    assert [(row["producer_id"], row["current_transaction_start_offset"]) for row in rows] == [
        (9, 1_020),
        (7, 1_040),
        (8, None),
    ]
    assert main(["decode", "--file", str(path), "--count", "1"]) == 0
    text = capsys.readouterr().out
    assert "2 of 3 producers have an open transaction" in text
    assert "the state of the producers at offset 1000" in text
    assert "left out: 2 rows: --count 1" in text


def test_a_file_or_a_text_is_given_without_a_flag(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = "[2026-11-29] INFO Initialized transactionalId app with producerId 9 and producer epoch 3"
    path = put(tmp_path / f"{NAME}.snapshot", SNAPSHOT)
    for given, field in (
        (str(path), "current_transaction_start_offset"),
        (line, "what"),
        (a_value(VALUE).hex(), "version"),
    ):
        assert main(["decode", given, "--format", "json"]) == 0
        assert field in json.loads(capsys.readouterr().out)["rows"][0]
    for given, why in (
        ("nothing-here", "no file has this name"),
        (str(tmp_path), "found a directory"),
        ("x" * 5_000, "no file"),
    ):
        assert main(["decode", given]) == 2
        assert why in capsys.readouterr().err
    assert main(["decode", str(path), "--file", str(path)]) == 2
    assert main(["decode", str(put(tmp_path / "empty", b""))]) == 0
    assert "is empty" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["orders-0/evidence", f"backup/{NAME}.log", f"backup-3/{NAME}.log.deleted"])
def test_the_coordinators_log_is_recognised_by_its_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    path = put(tmp_path / name, LOGGED)
    rows = decoded(capsys, path)["rows"]
    assert [(row["transactional_id"], row["partition"]) for row in rows] == [("app", None), ("gone", None)]
    assert main(["decode", "--file", str(path)]) == 0
    assert "recognised as a segment of __transaction_state by its records" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["__transaction_state-4", "__transaction_state-4.a1b2-delete"])
def test_the_folder_names_the_partition(capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str) -> None:
    path = put(tmp_path / folder / f"{NAME}.log", LOGGED)
    assert [row["partition"] for row in decoded(capsys, path)["rows"]] == [4, 4]


NOT_THE_LOG = {
    "transactional": a_batch(records=[a_record(key=a_key("app"), value=a_value(VALUE))]),
    "transactional without a producer": a_batch(
        producer_id=-1, records=[a_record(key=a_key("app"), value=a_value(VALUE))]
    ),
    "idempotent": a_batch(transactional=False, records=[a_record(key=a_key("app"), value=a_value(VALUE))]),
    "compressed": a_batch(transactional=False, producer_id=-1, codec=1),
    "another key": a_batch(transactional=False, producer_id=-1, records=[a_record(key=b"\0\0\0\1ab", value=b"x")]),
    "another value": a_batch(transactional=False, producer_id=-1, records=[a_record(key=a_key("app"), value=b"x")]),
    "one record of two": a_batch(
        transactional=False,
        producer_id=-1,
        records=[a_record(key=a_key("app"), value=a_value(VALUE)), a_record(1)],
    ),
    "no key": a_batch(transactional=False, producer_id=-1, records=[a_record(key=None)]),
}


@pytest.mark.parametrize("content", NOT_THE_LOG.values(), ids=NOT_THE_LOG.keys())
def test_records_of_users_are_not_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes) -> None:
    (row,) = decoded(capsys, put(tmp_path / f"{NAME}.log", content))["rows"]
    assert row["kind"] in {"data", "transactional"}
    assert "transactional_id" not in row


def test_a_compacted_log_is_recognised_behind_its_empty_batch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    empty = a_batch(records=[], last_offset_delta=0, producer_id=-1, transactional=False)
    path = put(tmp_path / "x", empty + LOGGED)
    assert [row["transactional_id"] for row in decoded(capsys, path)["rows"]] == ["app", "gone"]


def test_an_empty_batch_is_no_sign_of_the_coordinators_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty = a_batch(records=[], last_offset_delta=0, producer_id=-1, transactional=False)
    rows = decoded(capsys, put(tmp_path / "x", empty + NOT_THE_LOG["no key"]))["rows"]
    assert [row["kind"] for row in rows] == ["data", "data"]


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        (f"{NAME}.log", DATA + a_batch(3), "base_offset"),
        (
            "log",
            LOGGED + a_batch(3, producer_id=-1, transactional=False, records=[a_record(key=a_key("x"), value=None)]),
            "offset",
        ),
        (
            "pasted.txt",
            b"".join(
                b"| offset: %d CreateTime: 1 key: transaction_metadata::transactionalId=a payload: <DELETE>\n" % at
                for at in (0, 1, 3)
            ),
            "offset",
        ),
    ],
)
def test_an_offset_is_where_the_rows_begin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes, field: str
) -> None:
    path = put(tmp_path / name, content)
    assert len(decoded(capsys, path)["rows"]) == 3
    assert [row[field] for row in decoded(capsys, path, "--offset", "3")["rows"]] == [3]


def test_old_messages_have_no_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert decoded(capsys, put(tmp_path / f"{NAME}.log", an_old_entry() + DATA))["rows"][0]["base_offset"] == 0


def test_the_rows_before_the_damage_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    damaged = DATA + DATA[:16] + b"\x09" + DATA[17:]
    answer = decoded(capsys, put(tmp_path / f"{NAME}.log", damaged), code=1)
    assert len(answer["rows"]) == 2
    ((what, why),) = [(one["what"], one["why"]) for one in answer["not_checked"]]
    assert what.endswith(f"{NAME}.log")
    assert why.startswith(f"magic at byte {len(DATA) + 16}: expected at most 2, found 9. The rows are those before it")
    assert "copy the file again" in why

    bad = a_batch(2, producer_id=-1, transactional=False, records=[a_record(key=a_key("app"), value=b"bad")])
    answer = decoded(capsys, put(tmp_path / "x", LOGGED + bad), code=1)
    assert len(answer["rows"]) == 2
    assert answer["not_checked"][0]["why"].startswith("batch at offset 2: value version at byte 0: expected 0 to 1")


def test_what_a_cut_gzip_file_has_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def half(content: bytes) -> bytes:
        stored = zlib.compressobj(level=0, wbits=31)
        packed = stored.compress(content) + stored.flush()
        return packed[: len(packed) // 2]

    path = put(tmp_path / f"{NAME}.log.gz", half(DATA + bytes(1 << 17)))
    answer = decoded(capsys, path, "--count", "2", code=1)
    assert len(answer["rows"]) == 2
    assert "the gzip file is cut or damaged (Compressed file ended" in answer["not_checked"][0]["why"]

    path = put(tmp_path / f"{NAME}.snapshot.gz", half(SNAPSHOT))
    assert "the gzip file is cut or damaged" in failed(capsys, path)
    assert "expected a gzip file, found a damaged one" in failed(capsys, put(path, gzip.compress(SNAPSHOT)[:9]))


REFUSED = {
    "a changed snapshot": (f"{NAME}.snapshot", SNAPSHOT[:-1] + b"\0", "checksum at byte 2"),
    "a cut snapshot": (f"{NAME}.snapshot", SNAPSHOT[:-1], "txnwatch describe-producers"),
    "a later snapshot": (f"{NAME}.snapshot", a_snapshot(version=2), "upgrade txnwatch), found 2\n"),
    "an empty snapshot": (f"{NAME}.snapshot", b"", "is not a snapshot of the producer state that can be read"),
    "an index": (f"{NAME}.index", b"", "found an index of a segment, which has no transactions: decode the .log file"),
    "a time index": (f"{NAME}.timeindex.deleted", b"\0\1", "decode the .log file of the same name"),
    "a txnindex": (f"{NAME}.txnindex", b"\0\1", "decode the .log file of the same name, which has their markers"),
    "leader epochs": ("leader-epoch-checkpoint", b"0\n1\n0 0\n", "the first offset of each leader epoch, as text"),
    "the id of the topic": ("partition.metadata", METADATA, "the id of the topic, as text: read it with cat"),
    "a damaged segment": (f"{NAME}.log", DATA[:16] + b"\x09" + DATA[17:], "magic at byte 16: expected at most 2"),
    "something else": ("evidence.bin", b"\0\x01\x02\x03" * 30, "found 120 bytes that begin with 00 01 02 03"),
    "ids of the broker": ("meta.properties", b"version=1\n", "the ids of the cluster and of the broker"),
    "offsets of all partitions": ("replication-offset-checkpoint", b"0\n0\n", "read it with cat"),
    "offsets that are not there yet": ("cleaner-offset-checkpoint", b"", "read it with cat"),
    "a vote": ("quorum-state", b"{}", "the last vote of a controller (KRaft), as text: read it with cat"),
    "KRaft": ("00000000000000000100-0000000001.checkpoint", DATA, "--cluster-metadata-decoder"),
    "a mark": (".kafka_cleanshutdown", b"", "decode a .snapshot or .log file"),
    "zstd": (f"{NAME}.log", b"\x28\xb5\x2f\xfd\0\0", "compressed with zstd: unpack it first (zstd -d)"),
    "tar": ("evidence.tar.gz", gzip.compress(bytes(257) + b"ustar\0"), "unpack it first (tar -x)"),
    "another text": ("notes.txt", b"hello world\n", "found 'hello world\\n'"),
    "a key as text": ("key.txt", a_key("app").hex().encode(), "These bytes are a key: give them as --key"),
    "a cut value as text": ("v.txt", a_value(VALUE)[:-3].hex().encode(), "may be cut: copy the whole key or value"),
}


@pytest.mark.parametrize(("name", "content", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_cannot_be_read_is_refused_with_the_next_step(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    shown = failed(capsys, put(tmp_path / name, content))
    assert message in shown
    assert str(tmp_path) in shown
    assert len(shown) < 800


def test_a_directory_is_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "expected a file, found a directory" in failed(capsys, tmp_path, code=2)
    assert "null" in failed(capsys, "a\0b", code=2)


def test_an_offset_is_refused_where_there_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = put(tmp_path / f"{NAME}.snapshot", SNAPSHOT)
    assert "has no offsets to begin at: leave --offset out" in failed(capsys, path, "--offset", "3", code=2)


def test_standard_input_is_known_by_its_content(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(content: bytes) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        rows: list[dict[str, Any]] = decoded(capsys, "-")["rows"]
        return rows

    assert given(SNAPSHOT)[0]["producer_id"] == 9
    assert given(gzip.compress(LOGGED))[0]["transactional_id"] == "app"
    assert given(DATA)[0]["kind"] == "transactional"
    assert given(b"app::NULL\n")[0]["transactional_id"] == "app"
    assert given("app::NULL\r\n".encode("utf-16"))[0]["transactional_id"] == "app"
    assert given(a_value(VALUE).hex(":").encode())[0]["topic_partitions"] == ["orders-0"]
    assert given(DATA.hex().encode())[1]["kind"] == "COMMIT"
    assert given(b"") == []


def test_a_stream_larger_than_a_segment_is_not_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LARGEST", 1_000)
    path = put(tmp_path / f"{NAME}.log.gz", gzip.compress(bytes(5_000)))
    assert "expected at most 1000 bytes, as a segment has, found more" in failed(capsys, path)


@pytest.mark.parametrize("limit", ["_LARGEST_TEXT", "_LARGEST_BYTES_TEXT"])
def test_a_text_that_is_too_large_is_not_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    path = put(tmp_path / "value.txt", a_value(VALUE).hex().encode())
    assert len(decoded(capsys, path)["rows"]) == 1
    monkeypatch.setattr(decode, limit, 20)
    assert "20" in failed(capsys, path)


def test_pasted_lines_that_are_no_records_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = put(tmp_path / "pasted.txt", b"app::NULL\n" + b"junk\n" * 30)
    answer = decoded(capsys, path, code=1)
    assert len(answer["rows"]) == 1
    assert answer["not_checked"][0]["what"] == f"{path} line 2"
    assert answer["not_checked"][-1] == {"what": "10 more lines", "why": "they are no records"}
    assert "have no offsets: leave --offset out" in failed(capsys, path, "--offset", "1", code=2)


def test_text_of_another_program_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hostile = a_batch(producer_id=-1, transactional=False, records=[a_record(key=a_key("a\x1b[2J\u202eb"), value=None)])
    for path in (put(tmp_path / "x\x1b", hostile), put(tmp_path / "t", b"a\x1b[2J::NULL\njunk\x1b[2J")):
        for how in ("text", "json"):
            main(["decode", "--file", str(path), "--format", how])
            shown = capsys.readouterr()
            assert "\\u001b[2J" in shown.out or "\\x1b[2J" in shown.out
            assert all(line.isprintable() for line in (shown.out + shown.err).splitlines())


WRONG_BYTES = {
    "a key as a value": (["--value", a_key("app").hex()], "These bytes are a key: give them as --key"),
    "a value as a key": (["--key", a_value(VALUE).hex()], "These bytes are a value: give them as --value"),
    "batches": (["--value", DATA.hex()], "These bytes are record batches: write them to a file"),
    "a later version": (["--value", "0002" + a_value(VALUE).hex()[4:]], "if the broker is newer, upgrade txnwatch"),
    "more than a value": (["--value", a_value(VALUE).hex() + "00"], "Other bytes follow it: copy only the key or"),
    "another record": (["--value", b"hello".hex()], "found 5 bytes that begin with 68 65 6c 6c 6f: check from which"),
    "a cut value": (["--value", a_value(VALUE)[:-2].hex()], "The bytes may be cut: copy the whole key or value"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG_BYTES.values(), ids=WRONG_BYTES.keys())
def test_bytes_of_something_else_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["decode", *arguments]) == (2 if "--key" in arguments else 1)
    shown = capsys.readouterr().err
    assert message in shown
    assert ("upgrade" in shown) == ("upgrade" in message)
    assert ("check from which" in shown) == ("check from which" in message)
