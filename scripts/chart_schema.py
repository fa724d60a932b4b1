"""The JSON schema of the chart's values. The settings are those of `RunSettings`, so a new one is in the chart at once.

The settings that other values of the chart set are missing. A password is refused, because Helm stores all values in
the cluster; a user, or a reference to a file or a variable that has the password, is accepted.

The patterns are those of Go (RE2), because Helm uses it: there is no lookahead, so a second pattern excludes something.
"""

from __future__ import annotations

import json
from typing import Any

from txnwatch.config import INT64, RunSettings
from txnwatch.page.clusters_file import MOST_CLUSTERS, NAME, ClusterEntry

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
# What no variable may have as plain text: a value by its name, and the password of a URL.
_SECRET_NAME = r"(PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|SECRET_KEY|SECRET_ACCESS_KEY)"  # noqa: S105 - a pattern
_PASSWORD_IN_URL = r"://[^/@]*:[^/@]+@"  # noqa: S105 - a pattern
# Of pydantic, for a type with a validator of its own, and of JSON schema.
_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "minimum": "minimum",
    "exclusiveMinimum": "exclusiveMinimum",
    "maximum": "maximum",
}
_WITHOUT_COMMA = r"^[^,]+$"
_DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_QUANTITY = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i?|m|k)?$"
_FILE = r"^[-._a-zA-Z0-9]*$"
_TEXT: dict[str, Any] = {"type": "string"}
_MAP: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
_LIST: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
_PORT: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 65535}
_QUANTITIES: dict[str, Any] = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _matching(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def settings_schema() -> dict[str, Any]:
    """The schema of `settings`: the settings of `txnwatch run` that are neither secret nor set by the chart."""
    fields = RunSettings.model_json_schema()["properties"]
    properties = {key: _setting(key, spec) for key, spec in fields.items() if key not in SET_BY_THE_CHART}
    properties["bootstrap_server"]["minLength"] = 1
    return {**_object(**properties), "required": ["bootstrap_server"]}


def _setting(key: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The schema of one setting. A setting without a value is left out, so it is never null."""
    about = {"description": spec["description"]}
    if "prefixes" in key:  # the variable is comma-separated text
        return {**about, "anyOf": [_TEXT, {"type": "array", "items": _matching(_WITHOUT_COMMA)}]}
    kinds = [kind for kind in spec.get("anyOf", [spec]) if kind.get("type") != "null"]
    (kind,) = kinds
    translated = {
        _KEYWORDS.get(name, name): value for name, value in kind.items() if name in {*_KEYWORDS, "type", "enum"}
    }
    if translated.get("maximum") == INT64:  # not a number that JSON can express
        del translated["maximum"]
    url = {"pattern": _URLS, "not": {"pattern": _PLAIN_PASSWORD_IN_QUERY}}
    return {**about, **translated, **(url if key.endswith("_url") else {})}


def _secret() -> dict[str, Any]:
    files = {
        key: _matching(_FILE) for key in ("clientProperties", "config", "eventsKey", "owners", "pushFile", "webConfig")
    }
    uses_a_file = [{"properties": {key: {"minLength": 1}}, "required": [key]} for key in files]
    return {
        **_object(existingSecret=_TEXT, **files),
        "if": {"anyOf": uses_a_file},
        "then": {"properties": {"existingSecret": {"minLength": 1}}, "required": ["existingSecret"]},
    }


def _checkpoint() -> dict[str, Any]:
    volume = _object(
        existingClaim=_TEXT,
        size=_matching(_QUANTITY),
        storageClassName=_TEXT,
        accessModes={
            "type": "array",
            "minItems": 1,
            "items": {"enum": ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]},
        },
        retainOnDelete={"type": "boolean"},
    )
    # abfss://container@account/path has a user part. A password would follow a colon, and may contain a slash.
    return _object(uri=_matching(r"^([a-z][a-z0-9]*://([^:/@]+@)?[^@]+)?$"), volume=volume)


def _extra_env() -> dict[str, Any]:
    """The schema of further variables. The template refuses TXNWATCH_*, because its error can have what to do."""
    name = _matching(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
    source = {"type": "object", "minProperties": 1, "maxProperties": 1}
    variable = _object(name=name, value={**_TEXT, "not": {"pattern": _PASSWORD_IN_URL}}, valueFrom=source)
    is_secret = {"properties": {"name": _matching(f"({_SECRET_NAME}|{_SECRET_NAME.lower()})$")}}
    return {
        "type": "array",
        "items": {
            **variable,
            "required": ["name"],
            "oneOf": [{"required": ["value"]}, {"required": ["valueFrom"]}],
            "if": is_secret,
            "then": {"required": ["valueFrom"]},
        },
    }


def _metrics() -> dict[str, Any]:
    enabled = {"type": "boolean"}
    monitor = _object(
        enabled=enabled, interval=_matching(r"^[0-9]+(ms|s|m)$"), labels=_MAP, endpoint={"type": "object"}
    )
    return _object(
        port=_PORT, serviceMonitor=monitor, prometheusRule=_object(enabled=enabled, incidents=enabled, labels=_MAP)
    )


def _network_policy() -> dict[str, Any]:
    ports = {"type": "array", "items": _PORT}
    rule = _object(ports=ports, to=_LIST)
    return _object(
        enabled={"type": "boolean"},
        metricsFrom=_LIST,
        dnsTo=_LIST,
        kafka=rule,
        redis=rule,
        schemaRegistry=rule,
        push=rule,
        tokenEndpoint=_object(url=_matching(r"^(https?://[^@]+)?$"), ports=ports, to=_LIST),
        extraIngress=_LIST,
        extraEgress=_LIST,
    )


def _page() -> dict[str, Any]:
    """The schema of `txnwatch page`; a key of a cluster that is a setting of `run` has the schema of that setting."""
    of_run = RunSettings.model_json_schema()["properties"]
    of_page = {"name": _matching(f"^{NAME.pattern}$"), "watcher_url": _matching(r"^https?://[^@]+$")}
    keys = {
        key: of_page.get(key) or (_TEXT if key in SET_BY_THE_CHART else _setting(key, of_run[key]))
        for key in ClusterEntry.model_fields
    }
    rule = _network_policy()["properties"]
    return {
        **_object(
            enabled={"type": "boolean"},
            clusters={
                "type": "array",
                "maxItems": MOST_CLUSTERS,
                "items": {**_object(**keys), "required": ["name", "bootstrap_server"]},
            },
            port=_PORT,
            replicas={"type": "integer", "minimum": 1},
            httpNames={"type": "array", "items": _matching(_WITHOUT_COMMA)},
            resources=_object(requests=_QUANTITIES, limits=_QUANTITIES),
            networkPolicy=_object(
                **{"from": _LIST}, **{key: rule[key] for key in ("kafka", "redis", "schemaRegistry", "tokenEndpoint")}
            ),
        ),
        "if": {"properties": {"enabled": {"const": True}}, "required": ["enabled"]},
        "then": {"properties": {"clusters": {"minItems": 1}}},
    }


def chart_schema() -> str:
    """deploy/helm/txnwatch/values.schema.json."""
    name = {"type": "string", "maxLength": 52, "pattern": f"^$|{_DNS_LABEL}"}
    schema = _object(
        nameOverride=name,
        fullnameOverride=name,
        image=_object(
            repository={"type": "string", "minLength": 1},
            tag=_TEXT,
            digest=_matching(r"^(sha256:[0-9a-f]{64})?$"),
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        ),
        imagePullSecrets=_LIST,
        settings=settings_schema(),
        secret=_secret(),
        checkpoint=_checkpoint(),
        scratch=_object(sizeLimit=_matching(_QUANTITY)),
        metrics=_metrics(),
        page=_page(),
        networkPolicy=_network_policy(),
        podDisruptionBudget=_object(enabled={"type": "boolean"}, maxUnavailable={"enum": [0, 1]}),
        serviceAccount=_object(create={"type": "boolean"}, name=_TEXT, annotations=_MAP),
        resources=_object(requests=_QUANTITIES, limits=_QUANTITIES),
        terminationGracePeriodSeconds={"type": "integer", "minimum": 35},
        podAnnotations=_MAP,
        podLabels=_MAP,
        nodeSelector=_MAP,
        tolerations=_LIST,
        affinity={"type": "object"},
        priorityClassName=_TEXT,
        extraEnv=_extra_env(),
        extraVolumes=_LIST,
        extraVolumeMounts=_LIST,
        **{"global": {"type": "object"}},
    )
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    schema["description"] = "Generated by `make docs`; edit scripts/chart_schema.py."
    return json.dumps(schema, indent=2) + "\n"
