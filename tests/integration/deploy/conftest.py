"""The tools of Kubernetes for the tests of the chart.

A test without its tool is skipped with the reason. In continuous integration it fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from support import kubernetes_builds, kubernetes_tools
from support.kubernetes_tools import UnavailableError
from support.missing_tools import skip_or_fail

ROOT = Path(__file__).parents[3]


def tool(of: Callable[[], Path]) -> Path:
    try:
        return of()
    except UnavailableError as exc:
        skip_or_fail(f"{of.__name__} is not available: {exc}")


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The binary of kubectl."""
    return tool(kubernetes_tools.kubectl)


@pytest.fixture(scope="session")
def helm() -> Path:
    """The binary of helm."""
    return tool(kubernetes_tools.helm)


@pytest.fixture(scope="session")
def kubeconform() -> list[str]:
    """The command that checks manifests with the schemas of Kubernetes and of the Prometheus operator."""
    schemas = tool(kubernetes_builds.schemas) / "{{.ResourceKind}}{{.KindSuffix}}.json"
    return [str(tool(kubernetes_builds.kubeconform)), "-strict", "-summary", "-schema-location", str(schemas)]


@pytest.fixture(scope="session")
def manifests(helm: Path) -> ModuleType:  # noqa: ARG001 - the module needs it
    """The module that renders the chart."""
    sys.path.append(str(ROOT / "scripts"))
    import manifests

    return manifests
