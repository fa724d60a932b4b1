"""Who makes the archive of classes, and when; a script in the place of Java says whether an archive fits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from filelock import FileLock

from txnwatch.state.model.errors import TxnwatchError
from txnwatch_demo.embedded.jars import class_options, prepare_archive

_JAVA = """\
#!/bin/sh
for option; do case $option in -XX:SharedArchiveFile=*) exec grep -q fits "${option#*=}" ;; esac; done
exit 1
"""


class Writer:
    """In the place of a broker that writes the archive as it ends; notes how often it ran."""

    def __init__(self, content: str | None) -> None:
        self.content = content
        self.runs = 0

    def __call__(self, option: str) -> None:
        self.runs += 1
        if self.content is None:
            raise TxnwatchError("a broker that ended before it was ready")
        Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_text(self.content)


def begin_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process knows of no archive."""
    monkeypatch.setattr("txnwatch_demo.embedded.jars.ARCHIVES", {})


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two jars, and no archive yet."""
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_JAVA)
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    begin_process(monkeypatch)
    found = tmp_path / "jars"
    found.mkdir()
    for name in ("b.jar", "a.jar"):
        (found / name).touch()
    return found


def without_archive(jars: Path) -> list[str]:
    return ["-cp", f"{jars}/a.jar:{jars}/b.jar"]


def with_archive(jars: Path) -> list[str]:
    return [f"-XX:SharedArchiveFile={jars}/classes.jsa", "-Xlog:cds*=off", *without_archive(jars)]


def test_the_first_process_makes_the_archive_and_the_next_one_uses_it(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, shown = Writer("fits"), list[str]()
    assert class_options(jars) == without_archive(jars)
    prepare_archive(jars, writer, shown.append)
    assert class_options(jars) == with_archive(jars)
    begin_process(monkeypatch)
    prepare_archive(jars, writer, shown.append)
    assert class_options(jars) == with_archive(jars)
    assert writer.runs == 1
    assert shown == ["preparing the classes of Kafka (a few seconds, once)"]


def test_an_archive_that_does_not_fit_is_replaced(jars: Path) -> None:
    (jars / "classes.jsa").write_text("of another JVM")
    writer = Writer("fits")
    prepare_archive(jars, writer)
    assert (writer.runs, (jars / "classes.jsa").read_text()) == (1, "fits")


@pytest.mark.parametrize("content", [None, "half of it"], ids=["the broker does not start", "it does not fit"])
def test_without_an_archive_everything_runs_as_before(jars: Path, content: str | None) -> None:
    writer = Writer(content)
    for _ in range(2):
        prepare_archive(jars, writer)
    assert class_options(jars) == without_archive(jars)
    assert writer.runs == 1, "one attempt in a process"
    assert sorted(path.name for path in jars.iterdir()) == ["a.jar", "b.jar", "classes.lock"]


def test_where_no_file_can_be_made_no_broker_is_started_for_one(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("Read-only file system")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    writer = Writer("fits")
    prepare_archive(jars, writer)
    assert (class_options(jars), writer.runs) == (without_archive(jars), 0)


def test_a_process_waits_for_the_one_that_makes_the_archive(jars: Path) -> None:
    writer = Writer("fits")
    with FileLock(jars / "classes.lock"):
        waiting = threading.Thread(target=prepare_archive, args=(jars, writer))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        (jars / "classes.jsa").write_text("fits")
    waiting.join(30.0)
    assert (class_options(jars), writer.runs) == (with_archive(jars), 0)
