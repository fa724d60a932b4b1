"""What tests of the chart need of Kubernetes beside helm and kubectl: kubeconform, strict schemas, a real API server.

All of it is built from Go modules, once, and cached; the API server takes some minutes. Go checks the modules against
its checksum database.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.kubernetes_tools import KUBERNETES, KUBERNETES_VERSION, UnavailableError, made_once, output_of, short_name
from txnwatch_demo.embedded.jars import cache_directory

_KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0"
_PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"


def kubeconform() -> Path:
    """The binary of kubeconform.

    Raises:
        UnavailableError: there is no Go, or the module cannot be downloaded.
    """
    directory = cache_directory() / short_name(_KUBECONFORM)
    binary = directory / "kubeconform"
    if not binary.exists():
        go("install", _KUBECONFORM, GOBIN=str(directory))
    return binary


def schemas() -> Path:
    """The directory with a JSON schema for each kind.

    Raises:
        UnavailableError: see `kubeconform`.
    """
    directory = cache_directory() / f"schemas-{short_name(KUBERNETES)}-{short_name(_PROMETHEUS_OPERATOR)}"

    def write(partial: Path) -> None:
        swagger = _go_module(KUBERNETES) / "api" / "openapi-spec" / "swagger.json"
        write_schemas(swagger, custom_resources(), partial / "made")

    return made_once(directory, write)


def custom_resources() -> Path:
    """The directory with the definitions of the Prometheus operator's kinds.

    Raises:
        UnavailableError: see `kubeconform`.
    """
    return _go_module(_PROMETHEUS_OPERATOR) / "jsonnet" / "prometheus-operator"


def _go_module(module: str) -> Path:
    return Path(json.loads(go("mod", "download", "-json", module))["Dir"])


def go(*args: str, directory: str | None = None, **environ: str) -> str:
    """What a command of Go prints.

    Raises:
        UnavailableError: there is no Go, or the command fails.
    """
    found = shutil.which("go")
    if found is None:
        raise UnavailableError("there is no Go on the PATH")
    return output_of([found, *args], directory, **environ)


# JSON schemas for kubeconform, from the OpenAPI documents of Kubernetes and of the Prometheus operator.
#
# The schemas are strict: a field that a type does not have is an error. The API server ignores such a field, so a
# misspelt name would otherwise go unnoticed.

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


def _references(spec: Any) -> Iterator[str]:
    if isinstance(spec, dict):
        if isinstance(spec.get("$ref"), str):
            yield spec["$ref"].removeprefix(_REF)
        for inner in spec.values():
            yield from _references(inner)
    elif isinstance(spec, list):
        for inner in spec:
            yield from _references(inner)


# The API server of Kubernetes, and etcd.

_ETCD = "go.etcd.io/etcd/server/v3"
_ETCD_VERSION = "v3.6.4"
_API_SERVER = "k8s.io/kubernetes/cmd/kube-apiserver"
_VERSION_VARIABLE = "k8s.io/component-base/version.gitVersion"
# In the repository of Kubernetes, its libraries are directories. As modules they have a version of their own.
_LIBRARY = re.compile(r"^\s(k8s\.io/\S+) => \./staging/", flags=re.MULTILINE)


def api_server() -> tuple[Path, Path]:
    """The binaries of kube-apiserver and etcd.

    Raises:
        UnavailableError: there is no Go, or a module cannot be downloaded.
    """
    directory = cache_directory() / f"api-server-v{KUBERNETES_VERSION}-etcd-{_ETCD_VERSION}"
    binaries = directory / "kube-apiserver", directory / "etcd"
    directory.mkdir(parents=True, exist_ok=True)
    if not all(binary.exists() for binary in binaries):
        with tempfile.TemporaryDirectory() as module:
            (Path(module) / "go.mod").write_text(_go_mod())
            go("mod", "tidy", directory=module)
            flags = f"-s -w -X {_VERSION_VARIABLE}=v{KUBERNETES_VERSION}"
            for package, binary in zip((_API_SERVER, _ETCD), binaries, strict=True):
                go("build", "-ldflags", flags, "-o", str(binary), package, directory=module)
    return binaries


def _go_mod() -> str:
    of_kubernetes = Path(json.loads(go("mod", "download", "-json", KUBERNETES))["GoMod"]).read_text()
    version = KUBERNETES_VERSION.partition(".")[2]
    replaced = "".join(f"\t{name} => {name} v0.{version}\n" for name in _LIBRARY.findall(of_kubernetes))
    return (
        f"module local\n\ngo 1.24.0\n\ntool (\n\t{_API_SERVER}\n\t{_ETCD}\n)\n\n"
        f"require (\n\t{KUBERNETES.replace('@', ' ')}\n\t{_ETCD} {_ETCD_VERSION}\n)\n\nreplace (\n{replaced})\n"
    )
