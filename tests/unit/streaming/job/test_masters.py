"""Which master runs the query, and which checkpoints its hosts reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.app import Watch
from txnwatch.cli.output import LOG
from txnwatch.config import RunSettings
from txnwatch.named_files import NamedFiles
from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.spark_conf import check_checkpoint_place, chosen_master

SUBMITTED = {"PYSPARK_GATEWAY_PORT": "4711"}
CLUSTERS = ("spark://host:7077", "k8s://https://host", "yarn")


@pytest.mark.parametrize("master", CLUSTERS)
@pytest.mark.parametrize("checkpoint", ["txnwatch-checkpoint", "/var/lib/txnwatch", "file:///var/lib/txnwatch"])
def test_a_directory_of_this_host_is_refused_with_a_cluster(master: str, checkpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"found the directory .* give a URI such as hdfs://.*checkpoint_is_shared"):
        check_checkpoint_place(checkpoint, master, is_shared=False)
    check_checkpoint_place(checkpoint, master, is_shared=True)


@pytest.mark.parametrize("master", CLUSTERS)
@pytest.mark.parametrize("checkpoint", ["hdfs://namenode:8020/txnwatch", "s3a://bucket/txnwatch"])
def test_a_shared_file_system_serves_a_cluster(master: str, checkpoint: str) -> None:
    check_checkpoint_place(checkpoint, master, is_shared=False)


@pytest.mark.parametrize("master", ["", "local", "local[2,4]", "local[*]", "local-cluster[2,1,1024]"])
def test_a_directory_serves_a_master_on_this_host_and_one_that_is_not_known_yet(master: str) -> None:
    check_checkpoint_place("/var/lib/txnwatch", master, is_shared=False)


def test_the_setting_then_spark_submit_then_the_default_chooses_the_master() -> None:
    assert chosen_master(None, {}) == "local[2,4]"
    assert chosen_master(None, SUBMITTED) == ""
    assert chosen_master("yarn", SUBMITTED) == "yarn"
    assert chosen_master("", {}) == ""


def test_a_watch_refuses_it_before_it_connects(tmp_path: Path) -> None:
    settings = RunSettings(bootstrap_server="no.such.host:9", checkpoint=str(tmp_path), master="spark://host:7077")
    with pytest.raises(ConfigError, match="expected a file system that all hosts of the cluster reach"):
        Watch(settings, NamedFiles(), log=LOG, on_event=lambda _: None).check()
