"""The schema of the API: every real answer fits it, and it has every field of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from support.audited import an_audit, an_id, broker, facts, topic
from support.clusters_world import five_clusters
from support.page_client import a_stream, get
from support.page_world import PageWorld, a_busy_cluster, a_calm_cluster, now_ms
from txnwatch.page.site_files import Assets
from txnwatch.state.audit.audit_facts import NotAudited
from txnwatch.state.model.incident import EndedBy, EndKind, Resolution, resolved
from txnwatch.state.model.values import CoordinatorAccess, TopicPartition
from txnwatch.watch.coverage import MissingEvidence

SCHEMA: dict[str, Any] = json.loads(Assets().schema)


def strict(schema: Any, *, is_part: bool = False) -> Any:
    """The schema without room for a field that it does not have; `is_part`: of another one, by `allOf`."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items() if key != "allOf"}
    if "allOf" in schema:
        found["allOf"] = [strict(one, is_part=True) for one in schema["allOf"]]
    if not is_part and ("$ref" in schema or "properties" in schema):
        found["unevaluatedProperties"] = False
    return found


# A definition that is a part of another one cannot know the fields of the whole.
_SHARED = {"head", "incident_row", "cluster_line"}
STRICT = {
    "$defs": {
        name: {**strict(one), **({"unevaluatedProperties": True} if name in _SHARED else {})}
        for name, one in SCHEMA["$defs"].items()
    }
}


def check(name: str, value: Any) -> None:
    """Validates an answer against the published schema, and looks for fields that it does not have."""
    for schema in (SCHEMA, STRICT):
        whole = {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"], "unevaluatedProperties": schema is SCHEMA}
        jsonschema.Draft202012Validator(whole).validate(value)


def ended() -> PageWorld:
    world, at_ms = a_busy_cluster(), now_ms()
    end = Resolution(how=EndKind.ABORTED, by=EndedBy.TXNWATCH, at_ms=at_ms)
    world.incidents = [resolved(one, at_ms, end) for one in world.incidents]
    world.batch()
    return world


def partly_known() -> PageWorld:
    world = a_busy_cluster()
    world.evidence = MissingEvidence(unproven=(TopicPartition("metering", 4),))
    world.ends.clear()
    world.batch()
    return world


def audited() -> PageWorld:
    world = a_busy_cluster()
    of = facts(topic("payments", replicas=[2]), brokers=[broker("4.3") for _ in range(3)], ids=[an_id()])
    world.store.audited = an_audit(replace(of, missing=(NotAudited("ACLs", "hidden"),)), *world.incidents)
    return world


WORLDS: dict[str, Callable[[], PageWorld]] = {
    "busy": a_busy_cluster,
    "calm": a_calm_cluster,
    "ended": ended,
    "partly known": partly_known,
    "audited": audited,
    "not evaluated": PageWorld,
    "another view": lambda: PageWorld(access=CoordinatorAccess.API),
}
PATHS = {
    "/status": "status",
    "/snapshot": "snapshot",
    "/incidents": "incidents",
    "/incidents?state=recent": "recent_incidents",
    "/overview?owner=checkout": "overview",
    "/overview?topic=none": "overview",
    "/series": "series",
    "/open": "open",
    "/partitions": "partitions",
    "/ended": "ended",
    "/partitions/payments/0": "partition",
    "/partitions/none/7": "partition",
    "/producers/4021": "client",
    "/ids?name=checkout-7": "client",
    "/find?name=payments-0": "find",
    "/facts": "facts",
    "/audit": "audit",
    "/audit?check=marker-skipped": "audit",
    "/history": "history",
    "/roots": "roots",
    "/history?days=31": "history",
}


@pytest.fixture(params=WORLDS)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[PageWorld, str]]:
    world = WORLDS[request.param]()
    with world.served() as url:
        yield world, url


def test_every_answer_fits(served: tuple[PageWorld, str]) -> None:
    world, url = served
    for path, name in PATHS.items():
        answer = get(url, f"/api/v1{path}")
        check(name if answer.status == 200 else "error", answer.json)
    for path in (f"/incidents/{'0' * 32}?", "/producers/1?", "/ids?name=none&", "/find?name=nothing&"):
        check("missing", get(url, f"/api/v1{path}missing=null").json)
    for one in world.incidents:
        check("incident", get(url, f"/api/v1/incidents/{one.incident_id}").json)


def test_every_message_of_the_stream_fits() -> None:
    world = a_calm_cluster()
    with world.served() as url, a_stream(url) as stream:
        check("snapshot", stream.until("snapshot"))
        world.young += 1
        world.batch()
        check("delta", stream.until("delta"))
        check("beat", stream.until("beat"))
    with world.served() as url:
        stream_of = a_stream(url)
        stream = stream_of.__enter__()
        stream.until("snapshot")
    check("bye", stream.until("bye"))
    stream_of.__exit__(None, None, None)


def test_the_answers_about_several_clusters_fit() -> None:
    with five_clusters().served() as url:
        check("clusters", get(url, "/api/v1/clusters").json)
        check("clusters_status", get(url, "/api/v1/status").json)
        check("clusters_snapshot", get(url, "/api/v1/snapshot").json)
        check("clusters_incidents", get(url, "/api/v1/incidents?verdict=hanging").json)
        for row in get(url, "/api/v1/clusters").json["rows"]:
            check("status", get(url, f"/c/{row['key']}/api/v1/status").json)
            check("snapshot", get(url, f"/c/{row['key']}/api/v1/snapshot").json)
        assert get(url, "/api/v1/schema").json == get(url, "/c/TELEMETRY/api/v1/schema").json == SCHEMA


def test_it_is_a_schema_and_finds_what_is_wrong() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with a_busy_cluster().served() as url:
        status = get(url, "/api/v1/status").json
    for wrong in ({**status, "state": "green"}, {**status, "judged_ms": "now"}, {**status, "more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check("status", wrong)
    with pytest.raises(jsonschema.ValidationError):
        check("status", {key: value for key, value in status.items() if key != "state"})
    jsonschema.validate({**status, "more": 1}, {"$ref": "#/$defs/status", **SCHEMA})
