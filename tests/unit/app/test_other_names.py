"""A setting that has two names is one setting, from every source."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.config import OTHER_NAMES, RunSettings
from txnwatch.setting_sources import load_settings
from txnwatch.state.model.errors import ConfigError

SERVER = 'bootstrap_server = "k:9092"\n'


def test_each_other_name_is_of_a_setting_and_no_setting_itself() -> None:
    assert set(OTHER_NAMES.values()) <= RunSettings.model_fields.keys()
    assert OTHER_NAMES.keys() & RunSettings.model_fields.keys() == set()


@pytest.mark.parametrize("name", ["http_port", "metrics_port"])
def test_both_names_are_read_from_a_file_and_from_a_variable(tmp_path: Path, name: str) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text(f"{SERVER}{name} = 9464\n")
    assert load_settings({}, file, {}).http_port == 9464
    file.write_text(SERVER)
    assert load_settings({}, file, {f"TXNWATCH_{name.upper()}": "9465"}).http_port == 9465


def test_a_source_overrides_another_one_also_under_the_other_name(tmp_path: Path) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text(f"{SERVER}http_port = 1\n")
    assert load_settings({}, file, {"TXNWATCH_METRICS_PORT": "2"}).http_port == 2
    assert load_settings({"http_port": "3"}, file, {"TXNWATCH_METRICS_PORT": "2"}).http_port == 3


def test_both_names_in_one_source_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text(f"{SERVER}http_port = 1\nmetrics_port = 2\n")
    with pytest.raises(ConfigError, match="metrics_port: expected one of metrics_port and http_port, which are one se"):
        load_settings({}, file, {})


def test_an_error_has_the_name_that_was_given(tmp_path: Path) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text(f"{SERVER}metrics_port = 99999\n")
    with pytest.raises(ConfigError, match=r"^metrics_port: expected .* found 99999 from file"):
        load_settings({}, file, {})
