"""JSON schemas for kubeconform, from the OpenAPI documents of Kubernetes and of the Prometheus operator.

The schemas are strict: a field that a type does not have is an error. The API server ignores such a field, so a
misspelt name would otherwise go unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_REF = "#/definitions/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def write_schemas(swagger: Path, custom_resources: Path, directory: Path) -> None:
    """Writes one file for each kind, named as kubeconform's template `{{.ResourceKind}}{{.KindSuffix}}` expects."""
    definitions = {name: _strict(spec) for name, spec in json.loads(swagger.read_text())["definitions"].items()}
    definitions[_QUANTITY] = {"type": ["string", "number"]}
    for name, spec in definitions.items():
        for kind in spec.pop("x-kubernetes-group-version-kind", ()):
            needed = {found: definitions[found] for found in _reachable(name, definitions)}
            _write(
                directory, kind["kind"], kind["group"], kind["version"], {"$ref": _REF + name, "definitions": needed}
            )
    for file in sorted(custom_resources.glob("*-crd.json")):
        spec = json.loads(file.read_text())["spec"]
        for version in spec["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            _write(directory, spec["names"]["kind"], spec["group"], version["name"], schema)


def _write(directory: Path, kind: str, group: str, version: str, schema: dict[str, Any]) -> None:
    suffix = "-".join(filter(None, (group.partition(".")[0], version)))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(schema))


def _strict(spec: dict[str, Any]) -> dict[str, Any]:
    """A schema that allows no other fields than its own, and numbers where Kubernetes takes them."""
    if spec.get("format") == "int-or-string" or spec.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    if "$ref" in spec:
        return {"$ref": spec["$ref"]}
    strict = dict(spec)
    strict.pop("default", None)
    if "properties" in spec:
        strict["properties"] = {name: _strict(inner) for name, inner in spec["properties"].items()}
        if not spec.get("x-kubernetes-preserve-unknown-fields"):
            strict["additionalProperties"] = False
    elif isinstance(spec.get("additionalProperties"), dict):
        strict["additionalProperties"] = _strict(spec["additionalProperties"])
    if "items" in spec:
        strict["items"] = _strict(spec["items"])
    return strict


def _reachable(name: str, definitions: dict[str, dict[str, Any]]) -> set[str]:
    found, left = {name}, [name]
    while left:
        for target in _references(definitions[left.pop()]):
            if target not in found:
                found.add(target)
                left.append(target)
    return found


def _references(spec: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(spec, dict):
        if isinstance(spec.get("$ref"), str):
            yield spec["$ref"].removeprefix(_REF)
        for inner in spec.values():
            yield from _references(inner)
    elif isinstance(spec, list):
        for inner in spec:
            yield from _references(inner)
