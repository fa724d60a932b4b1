"""`txnwatch page`: which clusters it follows, and what is wrong before it serves anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.cli.main import main
from txnwatch.cli.output import USAGE

ENTRY = '[[cluster]]\nname = "eu"\nwatchers = ["https://watch-1:9464/"]\n'
EU, US = ["--watcher", "eu=https://watch-1:9464/"], ["--watcher", "us=https://watch-2:9464/"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "page: expected --clusters-file or --watcher, found neither"),
        (["-b", "a:1"], "page: expected --clusters-file or --watcher, found neither"),
        (["--watcher", "https://watch-1:9464/"], "--watcher: expected NAME=URL, found no '='"),
        ([*EU, "--http-port", "70000"], "http_port: expected"),
        ([*EU, "--owners-file", "{none}"], "owners_file"),
        ([*EU, "--http-web-config-file", "{none}", "--http-port", "0"], "http_web_config_file"),
        ([*EU, *US, "-b", "a:1"], "--bootstrap-server: expected one cluster, found 2"),
        (["--clusters-file", "{none}"], "--clusters-file"),
        (["--clusters-file", "{file}", "-b", "a:1"], "found --bootstrap-server as well"),
        (["--clusters-file", "{file}", *EU], "found --watcher as well"),
        (["--clusters-file", "{authority}"], "expected certificates in PEM"),
        (["--clusters-file", "{login}"], "password_file"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    flags: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(ENTRY)
    none, authority, login = tmp_path / "none", tmp_path / "authority.toml", tmp_path / "login.toml"
    authority.write_text(f'{ENTRY}ca_file = "{none}"\n')
    login.write_text(f'{ENTRY}user = "page"\npassword_file = "{none}"\n')
    given = [flag.format(none=none, file=file, authority=authority, login=login) for flag in flags]
    try:
        code = main(["page", *given])
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 1
    assert code == USAGE
    assert expected in capsys.readouterr().err
