"""On a Spark cluster, no packet between its machines has a secret: they are encrypted. Without that, packets have it.

Spark has a loopback address of its own here. The sockets between a JVM and its own Python process have another one;
they never leave a machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.kafka_faults import late_write_after_abort
from support.spark_cluster import SECRET, SparkCluster
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from support.wire import WireTap
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long
EVENTS = "wire.events"
PASSWORD = "kanarienvogel-on-the-wire"
VERDICT_S = 180.0
SPARK_HOST = "127.0.0.2"


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_a_password_is_in_no_packet_if_spark_encrypts(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path, *, is_encrypted: bool
) -> None:
    (partition,) = create_topic(cluster, unique("wire"))
    properties = tmp_path / "client.properties"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties.write_text(
        f'security.protocol=PLAINTEXT\nsasl.jaas.config={login} username="u" password="{PASSWORD}";\n'
    )
    conf = [f"spark.authenticate.secret={SECRET}", "spark.executor.memory=700m"]
    conf += ["spark.broadcast.compress=false", "spark.shuffle.compress=false"]  # the search reads no compressed text
    conf += [f"spark.driver.host={SPARK_HOST}", f"spark.driver.bindAddress={SPARK_HOST}"]
    if not is_encrypted:
        conf += ["spark.network.crypto.enabled=false"]
    own = ("--topics", partition.topic, "--census-topics", partition.topic, "--events-topic", EVENTS)
    flags = (*own, "--command-config", str(properties), *(part for one in conf for part in ("--spark-conf", one)))
    try:
        tap = WireTap(SPARK_HOST, [PASSWORD])
    except (OSError, AttributeError) as exc:
        pytest.skip(f"this user may not read packets: {exc}")
    with tap, SparkCluster(tmp_path / "spark", workers=1, host=SPARK_HOST, is_encrypted=is_encrypted) as spark:
        on_cluster = ("--master", spark.master, "--checkpoint-is-shared", "true", "--state-partitions", "1")
        with RunningWatch(kafka.bootstrap_servers, tmp_path / "checkpoint", *flags, *on_cluster) as watch:
            watch.until_ready()
            late_write_after_abort(cluster, unique("zombie"), partition)
            opened = eventually(
                lambda: events_about(kafka.bootstrap_servers, partition, EVENTS), VERDICT_S, "the incident"
            )
            assert opened[0].verdict == "hanging"
            assert watch.stop() == 0
    assert tap.packets > 100, "the packets were read"
    assert (PASSWORD in tap.found) == (not is_encrypted)
