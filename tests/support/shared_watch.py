"""One whole watch for all tests that need nothing special of it: a pytest plugin, registered by tests/conftest.py.

A start of Spark is most of what such a test costs. One worker of pytest-xdist takes all files that name the fixture
`shared_watch` (units.py). The tests of the page are the first of them, because a hang that another test leaves would be
on the page; the tests that end the watch are the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.http_receiver import Receiver, receiving
from support.page_client import get
from support.servers import Clusters, create_coordinators
from support.watch import RunningWatch
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis
from txnwatch_demo.late_write import set_verification

EVENTS = "e2e.events"
MODULES_OF_A_USER = ("grp", "random", "numpy")


@dataclass(frozen=True)
class SharedWatch:
    """A watch with each way to publish, and the servers around it.

    Attributes:
        kafka: one broker of this watch alone, which does not verify transactional writes.
        places: where it publishes, as flags of a command.
        receiver: its web hook.
        before_ready: the status of the page before Spark was ready.
    """

    watch: RunningWatch
    kafka: EmbeddedKafka
    redis: EmbeddedRedis
    places: tuple[str, ...]
    receiver: Receiver
    before_ready: dict[str, Any]


@pytest.fixture(scope="session")
def shared_watch(
    clusters: Clusters, redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedWatch]:
    """The directory in which it is started has files that are named like modules."""
    kafka = clusters.start("shared_watch", lambda: EmbeddedKafka(tmp_path_factory.mktemp("shared_watch")))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    create_coordinators(kafka)
    directory = tmp_path_factory.mktemp("with files named like modules")
    for module in MODULES_OF_A_USER:
        (directory / f"{module}.py").write_text("raise ImportError('a file of the user')")
    places = ("--events-topic", EVENTS, "--redis-url", redis_server.url)
    with receiving() as receiver:
        push_file = directory / "push.toml"
        push_file.write_text(f'[[webhook]]\nname = "pager"\nurl = "{receiver.url}/hook"\n')
        flags = (*places, "--push-file", str(push_file), "--http-port", "0")
        checkpoint = tmp_path_factory.mktemp("checkpoint")
        with RunningWatch(kafka.bootstrap_servers, checkpoint, *flags, directory=directory) as watch:
            before_ready = get(watch.page_url, "/api/v1/status").json
            watch.until_ready()
            yield SharedWatch(watch, kafka, redis_server, places, receiver, before_ready)
    clusters.end("shared_watch")
