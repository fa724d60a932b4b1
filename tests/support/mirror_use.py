"""Every operation of the Redis mirror, and what `txnwatch status` reads afterwards."""

from __future__ import annotations

from support.heartbeats import a_heartbeat
from support.incidents import a_life, an_event, id_of
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch.sinks.delivery.redis_views import read_shown
from txnwatch.state.model.findings import OpenTransaction


def use_everything(mirror: RedisMirror, cluster_id: str) -> None:
    """Every operation of the mirror once."""
    assert mirror.has_lost_everything()
    mirror.deliver([*a_life("over", cluster_id=cluster_id), an_event("open", cluster_id=cluster_id)])
    mirror.show_open([OpenTransaction(7, "checkout", "Ongoing", 1_000, None, ())])
    mirror.beat(a_heartbeat(cluster_id=cluster_id))
    mirror.deliver([an_event("forgotten", cluster_id=cluster_id)])
    mirror.forget({id_of("forgotten")}.__contains__)


def is_shown(url: str, cluster_id: str) -> None:
    """What `txnwatch status` reads there."""
    shown = read_shown(url)
    assert cluster_id in shown.clusters
    assert [event.incident_id for event in shown.incidents if event.cluster_id == cluster_id] == [id_of("open")]
    assert [beat.cluster_id for beat in shown.heartbeats if beat.cluster_id == cluster_id] == [cluster_id]
    assert shown.unread == {}
