"""SIGHUP to `txnwatch page`: the files are read again, and an error in them changes nothing."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from support.log_lines import log_restored
from txnwatch.cli import output, page
from txnwatch.cli.page import AskedClusters
from txnwatch.owners.owner_table import read_owners
from txnwatch.page.asking import ClusterAsker

TEAM = '[[owner]]\nteam = "{}"\ntransactional_ids = ["app-*"]\n'
Lines = Callable[[], list[str]]


def entry(name: str, **more: str) -> str:
    values = {"name": name, "bootstrap_server": f"{name}:9092", **more}
    texts = "".join(f'{key} = "{value}"\n' for key, value in values.items())
    return f'[[cluster]]\nwatchers = ["https://{name}:9464/"]\n{texts}'


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    with log_restored():
        output.log_to_stdout("text")
        yield lambda: [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]


class Reloaded:
    """The clusters of a file; their watchers are asked by nobody."""

    def __init__(self, directory: Path, began: mock.Mock, ended: mock.Mock) -> None:
        self.file, self.owners = directory / "clusters.toml", directory / "owners.toml"
        self.file.write_text(entry("eu") + entry("us"))
        self.owners.write_text(TEAM.format("checkout"))
        self.server, self.began, self.ended = mock.Mock(), began, ended
        parsed = argparse.Namespace(
            clusters_file=self.file,
            watcher=None,
            owners_file=self.owners,
            owners=read_owners(self.owners),
            http_names=(),
            http_web_config_file=None,
            given=set(),
        )
        self.clusters = AskedClusters(parsed)
        self.clusters.start()
        self.began.reset_mock()

    def again(self) -> tuple[list[str], list[str]]:
        """Reloads; the names of the clusters whose watchers are asked from now on, and no longer."""
        self.clusters.reload(self.server)
        found = names(self.began), names(self.ended)
        self.teams = [list(call.args[0].source.origin_of("X").owners.teams) for call in self.began.call_args_list]
        self.began.reset_mock()
        self.ended.reset_mock()
        return found

    @property
    def shown(self) -> list[str | None]:
        return [site.name for site in self.clusters.site.sites]


def names(called: mock.Mock) -> list[str]:
    return [call.args[0].source.name for call in called.call_args_list]


@pytest.fixture
def reloaded(tmp_path: Path) -> Iterator[Reloaded]:
    with (
        mock.patch.object(ClusterAsker, "start", autospec=True) as began,
        mock.patch.object(ClusterAsker, "stop", autospec=True) as ended,
    ):
        yield Reloaded(tmp_path, began, ended)


def test_a_reload_without_a_change_leaves_all_alone(reloaded: Reloaded, lines: Lines) -> None:
    sites = list(reloaded.clusters.site.sites)
    assert reloaded.again() == ([], [])
    assert [one is other for one, other in zip(sites, reloaded.clusters.site.sites, strict=True)] == [True, True]
    assert lines() == ["SIGHUP: asking the watchers of eu, us; new or changed: none; no longer as before: none"]


def test_a_cluster_that_is_new_or_changed_is_asked_anew(reloaded: Reloaded, lines: Lines) -> None:
    kept = reloaded.clusters.site.sites[0]
    reloaded.file.write_text(entry("eu") + entry("us", events_topic="other") + entry("asia"))
    assert reloaded.again() == (["us", "asia"], ["us"])
    assert reloaded.shown == ["eu", "us", "asia"]
    assert reloaded.clusters.site.sites[0] is kept
    assert lines() == ["SIGHUP: asking the watchers of eu, us, asia; new or changed: us, asia; no longer as before: us"]


def test_a_cluster_that_is_no_longer_named_is_let_go(reloaded: Reloaded) -> None:
    reloaded.file.write_text(entry("us"))
    assert reloaded.again() == ([], ["eu"])
    assert reloaded.shown == ["us"]


def test_other_owners_concern_all_clusters(reloaded: Reloaded) -> None:
    reloaded.owners.write_text(TEAM.format("ledger"))
    assert reloaded.again() == (["eu", "us"], ["eu", "us"])
    assert reloaded.teams == [["ledger"], ["ledger"]]


WRONG: dict[str, tuple[Callable[[Reloaded], Any], str]] = {
    "a cluster without watchers": (
        lambda found: found.file.write_text(entry("asia") + '[[cluster]]\nname = "eu"\n'),
        "entry 2: watchers: expected a value, found none",
    ),
    "no file": (lambda found: found.file.unlink(), "clusters.toml: expected a file that can be read"),
    "no TOML": (lambda found: found.file.write_text("[["), "clusters.toml: "),
    "a file of an entry": (
        lambda found: found.file.write_text(entry("asia", ca_file="/nowhere/ca.pem")),
        "expected certificates in PEM",
    ),
    "the owners": (lambda found: found.owners.write_text('[[owner]]\nteam = "NO TEAM"\n'), "owners_file"),
}


@pytest.mark.parametrize(("spoil", "expected"), WRONG.values(), ids=WRONG.keys())
def test_if_anything_is_wrong_nothing_changes(
    reloaded: Reloaded, lines: Lines, spoil: Callable[[Reloaded], Any], expected: str
) -> None:
    sites = list(reloaded.clusters.site.sites)
    spoil(reloaded)
    assert reloaded.again() == ([], [])
    assert list(map(id, reloaded.clusters.site.sites)) == list(map(id, sites))
    reloaded.server.protect.assert_not_called()
    (line,) = lines()
    assert line.startswith("warning: SIGHUP: nothing is reloaded: ")
    assert expected in line


def test_users_and_certificates_of_the_port_are_read_again(reloaded: Reloaded) -> None:
    reloaded.again()
    reloaded.server.protect.assert_called_once()


def test_signals_ask_for_a_reload_until_one_ends_the_process() -> None:
    with page.on_signals() as signals:
        signal.raise_signal(signal.SIGHUP)
        assert signals.wait()
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        assert not signals.wait()
