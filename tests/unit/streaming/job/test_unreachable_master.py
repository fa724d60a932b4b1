"""A master that does not answer is named, with the reason from the log of the JVM."""

from __future__ import annotations

import pytest

from txnwatch.streaming.job.failures import error_of_the_master

ATTEMPT = """26/11/25 13:28:{} WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master {}:7077
org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: java.io.IOException: Failed to connect to {}:7077
\tat org.apache.spark.network.client.TransportClientFactory.createClient(TransportClientFactory.java:337)
Caused by: java.net.ConnectException: Connection refused
\tat io.netty.channel.unix.Errors.newConnectException0(Errors.java:166)
"""
GIVEN_UP = """26/11/25 13:29:01 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are \
unresponsive! Giving up.
26/11/25 13:29:01 ERROR SparkContext: Error initializing SparkContext.
java.lang.NullPointerException: null
Caused by: java.lang.RuntimeException: a consequence
"""


def test_the_last_master_is_named_with_the_reason() -> None:
    log = ATTEMPT.format("01", "first", "first") + ATTEMPT.format("21", "last", "last") + GIVEN_UP
    assert str(error_of_the_master(log, "details: /spark.log")) == (
        "Spark: no connection to the master last:7077: ConnectException: Connection refused; "
        "check --master: local[N], spark://host:port, yarn or k8s://https://host:port; details: /spark.log"
    )


@pytest.mark.parametrize(
    "output",
    [ATTEMPT.format("01", "first", "first"), GIVEN_UP, ""],
    ids=["another master has answered", "no attempt", "no output"],
)
def test_another_failure_is_not_about_the_master(output: str) -> None:
    assert error_of_the_master(output, "") is None
