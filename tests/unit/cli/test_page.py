"""`txnwatch page`: which clusters it follows, and what is wrong before it serves anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.cli.main import main
from txnwatch.cli.output import USAGE

ENTRY = '[[cluster]]\nname = "eu"\nbootstrap_server = "kafka-1:9092"\n'


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "page: expected --clusters-file or --bootstrap-server, found neither"),
        (["-b", "a:1", "--http-port", "70000"], "http_port: expected"),
        (["-b", "a:1", "--redis-url", "http://a"], "expected redis://"),
        (["-b", "a:1", "--events-key-file", "{none}"], "No such file"),
        (["-b", "a:1", "--command-config", "{none}"], "expected a Java properties file"),
        (["-b", "a:1", "--owners-file", "{none}"], "owners_file"),
        (["-b", "a:1", "--http-web-config-file", "{none}", "--http-port", "0"], "http_web_config_file"),
        (["--clusters-file", "{none}"], "--clusters-file"),
        (["--clusters-file", "{file}", "-b", "a:1"], "found --bootstrap-server as well"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    flags: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(ENTRY)
    given = [flag.format(none=tmp_path / "none", file=file) for flag in flags]
    try:
        code = main(["page", *given])
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 1
    assert code == USAGE
    assert expected in capsys.readouterr().err
