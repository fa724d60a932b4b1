"""Where the archive of classes is, for which jars it counts, and that a start never fails because of it."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.jvm import new_archive, options_that_make, place_of, prepared_for, with_archive

LAUNCHER = "spark-launcher_2.13-4.3.0.jar"


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of an installed PySpark, in an environment that nobody has prepared."""
    home = tmp_path / "pyspark"
    for name in ("jars", "python/lib"):
        (home / name).mkdir(parents=True)
    (home / "jars" / LAUNCHER).write_text("a jar")
    (home / "python" / "lib" / "pyspark.zip").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return home


def content(real: Path) -> str | None:
    """What the archive has; None if there is none."""
    found = prepared_for(real)
    return found.archive.read_text() if found is not None and found.archive is not None else None


def prepare(real: Path, text: str = "classes") -> None:
    with new_archive(real) as written:
        written.write_text(text)


def test_the_archive_counts_when_it_is_written(real: Path) -> None:
    assert prepared_for(real) is None
    with new_archive(real) as written:
        found = prepared_for(real)
        assert found is not None, "the JVM that writes the archive has the same home"
        written.write_text("classes")
        assert found.archive is None
    assert content(real) == "classes"
    prepare(real, "again")
    assert content(real) == "again"


def test_an_archive_that_was_not_written_leaves_the_one_before(real: Path) -> None:
    prepare(real)
    with contextlib.suppress(RuntimeError), new_archive(real) as written:
        written.write_text("half")
        raise RuntimeError
    assert content(real) == "classes"
    with new_archive(real):
        pass
    assert content(real) == "classes"


def test_an_archive_that_is_cut_off_does_not_count(real: Path) -> None:
    """A JVM crashes on it."""
    prepare(real)
    found = prepared_for(real)
    assert found is not None
    assert found.archive is not None
    os.truncate(found.archive, 3)
    assert content(real) is None
    prepare(real)
    assert content(real) == "classes"
    assert len(list(found.home.parent.glob("*.jsa"))) == 1


def replaced(real: Path) -> None:
    (real / "jars" / LAUNCHER).write_text("another jar")


def touched(real: Path) -> None:
    os.utime(real / "jars" / LAUNCHER, (1, 1))


def added(real: Path) -> None:
    (real / "jars" / "another.jar").touch()


@pytest.mark.parametrize("change", [replaced, touched, added])
def test_an_archive_of_other_jars_is_not_used_and_is_removed_by_the_next_one(
    real: Path, change: Callable[[Path], None]
) -> None:
    prepare(real)
    before = place_of(real)
    change(real)
    assert content(real) is None
    prepare(real, "of the new jars")
    assert content(real) == "of the new jars"
    assert not before.exists()


def test_after_an_update_of_java_the_archive_is_not_used(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, library = tmp_path / "java" / "bin" / "java", tmp_path / "java" / "lib" / "server" / "libjvm.so"
    for file in (program, library):
        file.parent.mkdir(parents=True)
        file.write_text("17.0.1")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    prepare(real)
    assert content(real) == "classes"
    library.write_text("17.0.10")
    assert content(real) is None


def test_without_java_the_reason_is_that_of_the_start(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert prepared_for(real) is None


def test_times_count_in_seconds_because_layers_of_images_have_no_fractions(real: Path) -> None:
    jar = real / "jars" / LAUNCHER
    os.utime(jar, ns=(1_700_000_000_987_654_321,) * 2)
    prepare(real)
    os.utime(jar, (1_700_000_000, 1_700_000_000))
    assert content(real) == "classes"


def test_a_second_process_waits(real: Path) -> None:
    begun = threading.Event()

    def second() -> None:
        with new_archive(real) as written:
            begun.set()
            written.write_text("second")

    thread = threading.Thread(target=second)
    with new_archive(real) as written:
        thread.start()
        assert not begun.wait(0.2)
        written.write_text("first")
    thread.join(30.0)
    assert content(real) == "second"


def test_every_user_of_the_environment_can_read_it(real: Path) -> None:
    before = os.umask(0o077)
    try:
        prepare(real)
    finally:
        os.umask(before)
    found = prepared_for(real)
    assert found is not None
    assert found.archive is not None
    directories = (found.home.parent.parent, found.home.parent, found.home, found.home / "jars")
    assert all(path.stat().st_mode & stat.S_IROTH for path in (*directories, found.archive))
    assert all(path.stat().st_mode & stat.S_IXOTH for path in directories)


def test_a_start_goes_on_without_what_it_cannot_read(real: Path) -> None:
    prepare(real)
    (real / "jars" / "gone.jar").symlink_to(real / "nowhere.jar")
    assert prepared_for(real) is None


def test_a_place_that_cannot_be_written_is_named(real: Path) -> None:
    Path(sys.prefix).write_text("a file")
    with pytest.raises(ConfigError, match=r"environment/share/txnwatch.*found: Not a directory$"):
        prepare(real)


def test_an_archive_that_no_start_would_use_is_refused(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3.9")
    with pytest.raises(ConfigError, match=r"no start .* PYSPARK_PYTHON is /usr/bin/python3\.9"):
        prepare(real)
    assert prepared_for(real) is None


@pytest.mark.parametrize(
    "options",
    [
        "-XX:SharedArchiveFile=/own.jsa",
        "-XX:ArchiveClassesAtExit=/own.jsa",
        "-Xshare:off",
        options_that_make(Path("/x")),
    ],
)
def test_options_of_an_operator_about_archives_are_used(options: str) -> None:
    own = f"-Xss16m {options}"
    assert with_archive(own, Path("/ours.jsa")) == own
    assert '-XX:SharedArchiveFile="/ours.jsa"' in with_archive("-Xss16m", Path("/ours.jsa"))
