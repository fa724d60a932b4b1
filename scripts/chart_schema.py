"""The JSON schema of the chart's values: deploy/helm/values.schema.yaml, with settings of `RunSettings`.

So a new setting is in the chart at once. Settings that other values of the chart set are missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from txnwatch.config import RunSettings
from txnwatch.page.clusters_file import MOST_CLUSTERS, MOST_WATCHERS, ClusterEntry
from txnwatch.state.model.values import INT64
from txnwatch.state.text import CLUSTER_NAME

SOURCE = Path(__file__).resolve().parent.parent / "deploy" / "helm" / "values.schema.yaml"
# Values of the chart set these: `secret`, `checkpoint` and `metrics`.
# A table cannot be a variable: `secret.config` has it. The chart runs one pod, so no other host mounts its checkpoint.
SET_BY_THE_CHART = frozenset(
    {
        *("command_config", "events_key_file", "checkpoint", "http_port", "http_host"),
        *("http_web_config_file", "owners_file", "push_file", "spark_conf", "checkpoint_is_shared"),
    }
)
_REFERENCE = r"[$][{](file|env):[^{}]+[}]"
# Every part may be a reference, a password has to be one: redis://watch:${file:/etc/txnwatch/secret/redis}@redis:6379/0
_URL = rf"[a-zA-Z0-9+.-]+://(({_REFERENCE}|[^:/@?#$])*(:{_REFERENCE})?@)?({_REFERENCE}|[^@#$])*"
_URLS = f"^({_REFERENCE}|{_URL}(,{_URL})*)$"
# In `_URL` a $ begins a reference. So a password is plain if it begins otherwise, or continues after a reference.
_PLAIN_PASSWORD_IN_QUERY = r"[?].*password=([^$]|[$][{][^{}]*[}][^&])"  # noqa: S105 - a pattern
_OF_PYDANTIC = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}  # of a type with a validator of its own
_KEYWORDS = {"type", "enum", *_OF_PYDANTIC.values()}


def chart_schema() -> str:
    """deploy/helm/txnwatch/values.schema.json."""
    schema = yaml.safe_load(SOURCE.read_text())
    schema["properties"]["settings"] = _settings()
    clusters = schema["properties"]["page"]["properties"]["clusters"]
    clusters["maxItems"] = MOST_CLUSTERS
    clusters["items"] = _cluster(clusters["items"]["properties"])
    return json.dumps(schema, indent=2) + "\n"


def _settings() -> dict[str, Any]:
    """The schema of `settings`: the settings of `txnwatch run` that are neither secret nor set by the chart."""
    fields = RunSettings.model_json_schema()["properties"]
    properties = {key: _setting(key, spec) for key, spec in fields.items() if key not in SET_BY_THE_CHART}
    properties["bootstrap_server"]["minLength"] = 1
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": ["bootstrap_server"]}


def _cluster(of_page: dict[str, Any]) -> dict[str, Any]:
    """The schema of one cluster of `txnwatch page`; a key that is a setting of `run` has the schema of that setting."""
    of_run = RunSettings.model_json_schema()["properties"]
    name = {"type": "string", "pattern": f"^{CLUSTER_NAME.pattern}$"}
    watchers = {**of_page["watchers"], "maxItems": MOST_WATCHERS}
    others = {**of_page, "name": name, "watchers": watchers}
    properties = {key: others.get(key) or _setting(key, of_run[key]) for key in ClusterEntry.model_fields}
    required = ["name", "watchers"]
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


def _setting(key: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The schema of one setting. A setting without a value is left out, so it is never null."""
    about = {"description": spec["description"]}
    if "prefixes" in key:  # the variable is comma-separated text
        one = {"type": "string", "pattern": "^[^,]+$"}
        return {**about, "anyOf": [{"type": "string"}, {"type": "array", "items": one}]}
    (kind,) = (kind for kind in spec.get("anyOf", [spec]) if kind.get("type") != "null")
    renamed = {_OF_PYDANTIC.get(name, name): value for name, value in kind.items()}
    # JSON cannot express the largest number of 64 bits.
    found = {
        name: value for name, value in renamed.items() if name in _KEYWORDS and (name, value) != ("maximum", INT64)
    }
    url = {"pattern": _URLS, "not": {"pattern": _PLAIN_PASSWORD_IN_QUERY}}
    return {**about, **found, **(url if key.endswith("_url") else {})}
