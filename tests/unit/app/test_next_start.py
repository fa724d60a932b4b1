"""The archive of classes that a watch makes for the next start: where it may, and with a reason where it may not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.log_lines import LogLines
from support.waiting import eventually
from txnwatch import spark_start
from txnwatch.spark_start import INTERPRETER, MADE_WITHIN_S, NextStart, why_no_archive

_LONG_S = 20.0
GIB = 1 << 30


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine where it may be made; returns the directory that has its memory and the place of the archive."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {8 * GIB >> 10} kB\n")
    monkeypatch.setattr(spark_start, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(spark_start, "GROUP", tmp_path)
    monkeypatch.setattr(spark_start, "existing_place", lambda: tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return tmp_path


def making(log: LogLines, code: str, within_s: float = MADE_WITHIN_S) -> NextStart:
    made = NextStart(log, (*INTERPRETER, "-c", code), within_s=within_s)
    made.begin()
    return made


def test_it_is_made_in_the_background_at_the_lowest_priority_and_without_secrets(
    free: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNWATCH_REDIS_URL", "redis://:SECRET@a:1/0")
    log, seen = LogLines(), free / "seen"
    making(log, f"import os; open({str(seen)!r}, 'w').write(f'{{os.nice(0)}} {{sorted(os.environ)}}')")
    eventually(lambda: len(log) == 2, _LONG_S, "the report")
    assert "is made now in the background" in log[0]
    assert log[1] == "the archive of classes is made: the next start takes less time"
    assert seen.read_text().startswith("19 ")
    assert "TXNWATCH_REDIS_URL" not in seen.read_text()


def test_no_file_of_the_user_is_taken_for_a_module(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (free / "colorsys.py").write_text("raise ImportError('a file of the user')")
    monkeypatch.chdir(free)
    log = LogLines()
    making(log, "import colorsys")
    eventually(lambda: len(log) == 2, _LONG_S, "the report")
    assert log[1] == "the archive of classes is made: the next start takes less time"


def test_its_failure_is_one_line(free: Path) -> None:  # noqa: ARG001
    log = LogLines()
    making(log, "import sys; sys.exit('txnwatch: a disk is full')")
    eventually(lambda: len(log) == 2, _LONG_S, "the report")
    assert log[1] == "no archive of classes was made: txnwatch: a disk is full"


def test_a_stop_ends_it_without_a_word(free: Path) -> None:
    log, begun = LogLines(), free / "begun"
    code = f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    made = making(log, code)
    eventually(lambda: begun.exists() and begun.read_text(), _LONG_S, "the process")
    made.end()
    eventually(lambda: not Path(f"/proc/{begun.read_text()}").exists(), _LONG_S, "its end")
    made.end()
    assert len(log) == 1


def test_a_machine_without_a_free_processor_ends_it_in_time(free: Path) -> None:
    log, begun = LogLines(), free / "begun"
    code = f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    making(log, code, within_s=2.0)
    eventually(lambda: len(log) == 2, _LONG_S, "the report")
    assert log[1].startswith("no archive of classes was made: it took more than 2 s; `txnwatch prepare` makes it")
    assert not begun.exists() or not Path(f"/proc/{begun.read_text()}").exists()


def test_where_it_may_not_be_made_the_line_says_why(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_no_archive() is None
    (free / "memory.max").write_text("max\n")
    assert why_no_archive() is None, "the group has no limit"
    (free / "memory.max").write_text(f"{3 * GIB}\n")
    (free / "memory.current").write_text(f"{2 * GIB}\n")
    assert why_no_archive() == "1024 MB of memory are free, and it needs 2048 MB"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert why_no_archive() == "there is one processor only"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert why_no_archive() == f"this user may not write {free}"
    log = LogLines()
    NextStart(log, ("no-such-program",)).begin()
    (line,) = log
    assert f"none is made now: this user may not write {free}; `txnwatch prepare` makes it" in line
