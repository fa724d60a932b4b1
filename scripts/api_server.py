"""Builds a real API server of Kubernetes, and etcd, from their Go modules: once, in some minutes, and caches them."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from kubernetes_tools import KUBERNETES, KUBERNETES_VERSION, go

from txnwatch_demo.embedded.jars import cache_directory

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
