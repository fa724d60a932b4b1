"""Spark's network settings for each kind of master."""

from __future__ import annotations

import re

import pytest

from txnwatch.streaming.job.spark_conf import is_local, network_settings


@pytest.mark.parametrize("master", ["local", "local[2]", "local[2,4]", "local[*]"])
def test_a_local_master_listens_on_loopback_only(master: str) -> None:
    settings = network_settings(master)
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.authenticate"] == "true"


@pytest.mark.parametrize("master", ["", "local-cluster[2,1,1024]", "spark://host:7077", "k8s://https://host", "yarn"])
def test_a_cluster_is_authenticated_and_encrypted(master: str) -> None:
    settings = network_settings(master)
    assert not is_local(master)
    assert "spark.driver.host" not in settings
    assert settings["spark.authenticate"] == "true"
    assert settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.io.encryption.enabled"] == "true"


@pytest.mark.parametrize(
    "name",
    [
        *("kafka.sasl.jaas.config", "kafka.sasl.password", "kafka.ssl.key.password"),
        *("schema.registry.basic.auth.user.info", "spark.hadoop.fs.store.whatever", "fs.store.whatever"),
    ],
)
def test_spark_hides_options_with_a_secret(name: str) -> None:
    for key in ("spark.redaction.regex", "spark.sql.redaction.options.regex"):
        assert re.search(network_settings("local")[key], name)
