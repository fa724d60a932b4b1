"""Where the archive of classes is, and for which jars it counts."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.class_archive import archive_in, home_in, new_archive, place_of


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of an installed PySpark, in an environment that nobody has prepared."""
    home = tmp_path / "pyspark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark-launcher_2.13-4.3.0.jar").write_text("a jar")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    return home


def test_the_archive_counts_when_it_is_written(real: Path) -> None:
    place = place_of(real)
    assert (home_in(place), archive_in(place)) == (None, None)
    with new_archive(real) as written:
        assert home_in(place) is not None, "the JVM that writes the archive has the same home"
        written.write_text("classes")
        assert archive_in(place) is None
    archive = archive_in(place)
    assert archive is not None
    assert archive.read_text() == "classes"


def test_an_archive_that_was_not_written_leaves_the_one_before(real: Path) -> None:
    with new_archive(real) as written:
        written.write_text("classes")
    with contextlib.suppress(RuntimeError), new_archive(real) as written:
        written.write_text("half")
        raise RuntimeError
    archive = archive_in(place_of(real))
    assert archive is not None
    assert archive.read_text() == "classes"


def replaced(real: Path) -> None:
    (real / "jars" / "spark-launcher_2.13-4.3.0.jar").write_text("another jar")


def touched(real: Path) -> None:
    os.utime(real / "jars" / "spark-launcher_2.13-4.3.0.jar", ns=(1, 1))


def added(real: Path) -> None:
    (real / "jars" / "another.jar").touch()


@pytest.mark.parametrize("change", [replaced, touched, added])
def test_an_archive_of_other_jars_is_not_used_and_is_removed_by_the_next_one(real: Path, change: object) -> None:
    with new_archive(real) as written:
        written.touch()
    before = place_of(real)
    change(real)  # type: ignore[operator]
    assert archive_in(place_of(real)) is None
    with new_archive(real) as written:
        written.touch()
    assert archive_in(place_of(real)) is not None
    assert not before.exists()


def test_a_second_process_waits(real: Path) -> None:
    second = threading.Event()

    def prepare() -> None:
        with new_archive(real) as written:
            second.set()
            written.write_text("second")

    thread = threading.Thread(target=prepare)
    with new_archive(real) as written:
        thread.start()
        assert not second.wait(0.2)
        written.write_text("first")
    thread.join(30.0)
    archive = archive_in(place_of(real))
    assert archive is not None
    assert archive.read_text() == "second"


def test_a_directory_that_cannot_be_written_is_named(real: Path) -> None:
    Path(sys.prefix).write_text("a file")
    with pytest.raises(ConfigError, match=r"environment/share/txnwatch.*Not a directory"), new_archive(real):
        pass
