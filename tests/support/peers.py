"""What other tools report at the same moment: Kafka's own tool, kafka-python, and the broker's gauge."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from support.fault_world import FaultWorld
from support.scenarios import Fault
from txnwatch_demo.embedded.real_servers import free_ports

_TOOLS = "org.apache.kafka.tools"
_GAUGE = "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount"
_DEFAULT_MS = 900_000
_PADDING_MS = 300_000  # kafka-python adds it to every threshold
Answer = dict[str, Any]


def answers_of_others(world: FaultWorld, fault: Fault) -> Answer:
    """Each with its answer, and the tools with the seconds they took."""
    info = world.cluster.refresh().info(fault.partition)
    leader = info.leader if info is not None and info.leader is not None else 2
    at_default, at_0 = kafka_python(world, fault, [_DEFAULT_MS, -_PADDING_MS])
    return {
        "find_hanging": find_hanging(world, fault, leader, []),
        "find_hanging_at_0": find_hanging(world, fault, leader, ["--max-transaction-timeout", "0"]),
        "kafka_python": at_default,
        "kafka_python_at_0": at_0,
        "gauge": gauge(world, leader),
    }


def find_hanging(world: FaultWorld, fault: Fault, broker: int, flags: list[str]) -> Answer:
    """kafka-transactions.sh find-hanging, over all partitions of one broker."""
    began = time.monotonic()
    done = world.kafka.tool(
        f"{_TOOLS}.TransactionsCommand",
        *("--bootstrap-server", world.bootstrap, "find-hanging", "--broker-id", str(broker), *flags),
    )
    seconds = time.monotonic() - began
    rows = [line.split() for line in done.stdout.splitlines()[1:] if line.strip()]
    found = any(fault.partition.topic in row and str(pid) in row for row in rows for pid in fault.producer_ids)
    if found:
        return {"answer": "found", "seconds": seconds}
    if done.returncode:
        return {"answer": f"fails: {_error(done.stderr or done.stdout)}", "seconds": seconds}
    return {"answer": "nothing", "seconds": seconds}


def _error(text: str) -> str:
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("at ", "log4j"))
    ]
    return lines[0][:160] if lines else "no message"


def kafka_python(world: FaultWorld, fault: Fault, thresholds_ms: list[int]) -> list[Answer]:
    """KafkaAdminClient.find_hanging_transactions, in a process of its own: it leaves sockets behind."""
    command = [sys.executable, "-W", "ignore", "-c", _KAFKA_PYTHON, world.bootstrap, *map(str, thresholds_ms)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90.0)
    if done.returncode:
        return [{"answer": f"fails: {_last(done.stderr)}", "seconds": 0.0} for _ in thresholds_ms]
    return [
        {"answer": "found" if fault.producer_ids & set(found) else "nothing", "seconds": seconds}
        for found, seconds in json.loads(done.stdout)
    ]


_KAFKA_PYTHON = """
import json, sys, time
from kafka import KafkaAdminClient
admin = KafkaAdminClient(bootstrap_servers=sys.argv[1].split(","), request_timeout_ms=15000)
answers = []
for threshold_ms in sys.argv[2:]:
    began = time.monotonic()
    found = admin.find_hanging_transactions(max_transaction_timeout_ms=int(threshold_ms))
    answers.append(([row["producer_id"] for row in found], time.monotonic() - began))
print(json.dumps(answers))
"""


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:160]


class Gauges:
    """Opens JMX in running brokers, once each."""

    def __init__(self) -> None:
        self._ports: dict[int, int] = {}

    def port(self, pid: int) -> int:
        """The JMX port of a broker's process."""
        if pid not in self._ports:
            (port,) = free_ports(1)
            command = ["jcmd", str(pid), "ManagementAgent.start", f"jmxremote.port={port}"]
            options = ["jmxremote.authenticate=false", "jmxremote.ssl=false"]
            subprocess.run([*command, *options], check=True, capture_output=True, timeout=30.0)
            self._ports[pid] = port
        return self._ports[pid]


_GAUGES = Gauges()


def gauge(world: FaultWorld, broker: int) -> int | None:
    """PartitionsWithLateTransactionsCount of one broker, None where it could not be read."""
    try:
        port = _GAUGES.port(world.kafka.broker(broker).pid)
    except (OSError, subprocess.SubprocessError):
        return None
    done = world.kafka.tool(
        f"{_TOOLS}.JmxTool",
        *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi", "--object-name", _GAUGE),
        *("--reporting-interval", "-1", "--report-format", "tsv"),
    )
    for line in done.stdout.splitlines():
        name, _, value = line.partition("\t")
        if "PartitionsWithLateTransactionsCount" in name and value.strip().isdigit():
            return int(value)
    return None
