"""Spark's own settings: their three forms, and those that txnwatch does not accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bad_inputs import BadInputs
from txnwatch.setting_sources import load_settings
from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.jvm import arguments_of_the_jvm
from txnwatch.streaming.job.spark_conf import conf_of, file_system_settings, with_conf

BOOTSTRAP = {"bootstrap_server": "kafka:9092"}


@pytest.mark.parametrize(
    "given",
    [
        ["spark.executor.memory=2g", "spark.speculation=true", "spark.x=a=b"],
        "spark.executor.memory=2g 'spark.speculation=true' spark.x=a=b",
        {"spark.executor.memory": "2g", "spark": {"speculation": True, "x": "a=b"}},
    ],
    ids=["flags", "a variable", "a table"],
)
def test_every_form_gives_the_same_settings(given: object) -> None:
    assert conf_of(given) == {"spark.executor.memory": "2g", "spark.speculation": "true", "spark.x": "a=b"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["spark.executor.memory"], "expected KEY=VALUE"),
        (["executor.memory=2g"], "expected keys that begin with `spark.`, found executor.memory"),
        (["spark.master=yarn"], "spark.master: expected the setting master"),
        (["spark.sql.shuffle.partitions=4"], "expected the setting state_partitions"),
        ({"spark": {"sql": {"session": {"timeZone": "CET"}}}}, "txnwatch needs UTC"),
        ({"spark.x": [1]}, "spark.x: expected a text, a number, true or false"),
        (5, "expected a table, or KEY=VALUE texts"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(given: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected.replace("[", r"\[")):
        conf_of(given)


def test_an_operator_replaces_a_default_and_appends_java_options() -> None:
    own = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-Xss16m"}
    given = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Da=b"}
    assert with_conf(own, given) == {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Xss16m -Da=b"}
    assert with_conf({}, {}) == {}


def test_no_setting_that_may_be_a_secret_is_an_argument_of_the_jvm() -> None:
    visible = {"spark.executor.memory": "2g", "spark.jars": "/opt/a.jar"}
    hidden = {
        "spark.hadoop.fs.azure.account.key.events.dfs.core.windows.net": "x",
        "spark.hadoop.fs.any.store": "x",
        "spark.authenticate.secret": "x",
        "spark.ssl.keyPassword": "x",
    }
    assert arguments_of_the_jvm({**visible, **hidden}) == visible


def test_a_flag_replaces_a_key_of_the_file_and_keeps_the_others(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kanarienvogel\n")
    file = tmp_path / "txnwatch.toml"
    file.write_text(
        "[spark_conf]\nspark.executor.memory = '1g'\nspark.cores.max = 4\n"
        f"'spark.authenticate.secret' = '${{file:{secret}}}'\n"
    )
    flags = {**BOOTSTRAP, "spark_conf": ["spark.executor.memory=2g"]}
    found = load_settings(flags, file, {"TXNWATCH_SPARK_CONF": "spark.cores.max=8"})
    assert found.spark_conf == {
        "spark.executor.memory": "2g",
        "spark.cores.max": "8",
        "spark.authenticate.secret": "kanarienvogel",
    }
    assert "kanarienvogel" not in repr(found)


def test_a_setting_of_spark_that_txnwatch_has_itself(bad_inputs: BadInputs) -> None:
    """The error names the source and shows no value."""
    with pytest.raises(
        ConfigError, match=r"^spark_conf: spark.master: expected the setting master, from flag$"
    ) as raised:
        load_settings({**BOOTSTRAP, "spark_conf": ["spark.a.secret=kanarienvogel", "spark.master=x"]}, None, {})
    bad_inputs.keep("Settings", raised.value)


def test_a_checkpoint_elsewhere_has_bounded_connections() -> None:
    assert "spark.hadoop.ipc.client.connect.timeout" in file_system_settings("hdfs://nowhere:8020/x")
    assert not file_system_settings("/var/lib/txnwatch")
