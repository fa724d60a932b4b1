"""Real coordinators' clocks, from what they stamp: theirs is ours here, so the bounds must enclose nothing but that."""

from __future__ import annotations

from contextlib import closing

from support.raw_producer import RawProducer
from support.row_facts import fact_of
from support.servers import connect, create_coordinators
from support.topics import create_topic, unique
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.values import coordinator_partition, log_numbered
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import SourceOptions, parse_options
from txnwatch.streaming.source.tasks import TaskPlan, plan_reads, run_plan
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

IDS = 12


def test_every_coordinator_bounds_its_clock_on_both_sides(kafka3: EmbeddedKafka) -> None:
    create_coordinators(kafka3)
    options = parse_options(
        {"kafka.bootstrap.servers": kafka3.bootstrap_servers, "subscribePattern": ".*", "buckets": "1"}
    )
    with closing(connect(kafka3)) as cluster:
        (partition,) = create_topic(cluster, unique("clocks"))
        lister, offset = Lister(options, cluster), SourceOffset.beginning()
        for _ in range(2):
            following = lister.next_offset(offset)
            assert following is not None
            offset = following
        names = [unique("clock") for _ in range(IDS)]
        for name in names:
            producer = RawProducer(cluster, name).init()
            producer.add(partition)
            producer.end(commit=True)
        following = lister.next_offset(offset)
        assert following is not None
        (plan, *_) = plan_reads(offset, following, options)
        a_barrier = barrier_of(plan, options, cluster)
    logs = [log_numbered(coordinator_partition(name, len(a_barrier.leaders))) for name in names]
    led_by = {a_barrier.leaders[log].broker for log in logs}
    assert a_barrier.clocks.keys() == led_by
    for clock in a_barrier.clocks.values():
        assert clock.highest_ms is not None
        assert clock.lowest_ms <= 0 <= clock.highest_ms
        assert clock.highest_ms - clock.lowest_ms <= following.coordinator_listed_ms - offset.data_listed_ms


def barrier_of(plan: TaskPlan, options: SourceOptions, cluster: Cluster) -> Barrier:
    rows = [row for batch in run_plan(plan, options, cluster, cluster) for row in batch.to_pylist()]
    (barrier,) = [fact for fact in map(fact_of, rows) if isinstance(fact, Barrier)]
    return barrier
