"""The output of Spark is kept in files of limited size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import eventually
from txnwatch.spark_start import HeldOutput, NewText, RotatedLog
from txnwatch.state.model.errors import ConfigError


def sizes(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in directory.iterdir()}


def test_a_full_file_is_renamed_and_the_oldest_is_removed(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "spark.log", limit_bytes=10, older_files=2)
    for letter in b"abcdefg":
        log.write(bytes([letter]) * 6)
    log.close()
    assert sizes(tmp_path) == {"spark.log": 6, "spark.log.1": 6, "spark.log.2": 6}
    assert (tmp_path / "spark.log.2").read_bytes() == b"e" * 6


def test_a_file_of_an_earlier_start_counts(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_bytes(b"x" * 100)
    log = RotatedLog(tmp_path / "spark.log", limit_bytes=10, older_files=1)
    log.write(b"new")
    log.close()
    assert sizes(tmp_path) == {"spark.log": 3, "spark.log.1": 100}


def test_a_disk_that_does_not_take_it_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RotatedLog(tmp_path / "spark.log", limit_bytes=4, older_files=1)
    log.write(b"abc")

    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", is_full)
        log.write(b"lost")
    log.write(b"kept")
    log.close()
    assert (tmp_path / "spark.log").read_bytes() == b"kept"
    assert (tmp_path / "spark.log.1").read_bytes() == b"abc"


def test_bytes_are_kept_as_they_are(tmp_path: Path) -> None:
    every_byte = bytes(range(256)) + b"\r\n\n" + "\u20ac".encode()
    log = RotatedLog(tmp_path / "spark.log", limit_bytes=1_000)
    for at in range(0, len(every_byte), 7):
        log.write(every_byte[at : at + 7])
    log.close()
    assert (tmp_path / "spark.log").read_bytes() == every_byte


def test_all_output_of_a_process_is_copied_until_it_ends(tmp_path: Path) -> None:
    log = tmp_path / "new" / "spark.log"
    code = "import os, sys, time; print('out', flush=True); time.sleep(0.3); os.write(2, b'err')"
    output = HeldOutput()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=output.writing, stderr=output.writing)
    output.is_given()
    with output.kept_in(log):
        pass
    assert process.wait() == 0
    eventually(lambda: log.read_text() == "out\nerr", 5.0, log.read_text)


def test_output_is_held_until_its_file_is_known(tmp_path: Path) -> None:
    log, output = tmp_path / "new" / "spark.log", HeldOutput()
    code = "import sys; sys.stderr.write('JAVA_HOME is not set'); sys.exit(1)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=output.writing, stderr=output.writing)
    output.is_given()
    assert process.wait() == 1
    assert list(tmp_path.iterdir()) == []
    with output.kept_in(log) as written:
        assert written() == "JAVA_HOME is not set"
    assert log.read_text() == "JAVA_HOME is not set"


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "spark.log").mkdir()
    output = HeldOutput()
    output.is_given()
    with (
        pytest.raises(ConfigError, match=r"spark\.log: expected a file .* found: Is a directory"),
        output.kept_in(tmp_path / "spark.log"),
    ):
        pass


@pytest.mark.parametrize(
    "written",
    [
        [],
        [b"one"],
        [b"one", b"two", b"three"],
        [b"a" * 9, b"b" * 9],
        [b"a" * 7, b"b" * 9, b"c" * 9],
    ],
    ids=["nothing", "no rotation", "one rotation", "two rotations", "its file is removed"],
)
@pytest.mark.parametrize("before", [b"", b"old"], ids=["an empty file", "a file of an earlier start"])
def test_new_text_is_read_over_rotations(tmp_path: Path, before: bytes, written: list[bytes]) -> None:
    log = tmp_path / "spark.log"
    log.write_bytes(before)
    (tmp_path / "spark.log.1").write_bytes(b"older")
    with NewText(log) as new:
        file = RotatedLog(log, limit_bytes=10)
        for part in written:
            file.write(part)
        file.close()
        assert new.read() == b"".join(written).decode()
