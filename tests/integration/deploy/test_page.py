"""The commands of docs/kubernetes.md: they install what the plain manifests install, with the image that they push."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
PLAIN = (ROOT / "deploy" / "k8s" / "txnwatch.yaml").read_text()


def command(before: str, behind: str = "") -> str:
    """The rest of the one line of the page that begins with a command."""
    (found,) = re.findall(f"^{re.escape(before)} (.*){re.escape(behind)}$", PAGE, flags=re.MULTILINE)
    rest: str = found
    return rest


def installed(manifests: ModuleType) -> str:
    text: str = manifests.rendered(*shlex.split(command("helm install txnwatch deploy/helm/txnwatch")))
    return text


def container(text: str) -> dict[str, Any]:
    every = yaml.safe_load_all(text)
    (found,) = (one["spec"]["template"]["spec"] for one in every if one is not None and one["kind"] == "StatefulSet")
    only: dict[str, Any]
    (only,) = found["containers"]
    return only


def test_the_command_of_the_page_installs_it(manifests: ModuleType) -> None:
    assert container(installed(manifests))["env"] == container(PLAIN)["env"]


def test_the_image_that_the_page_builds_and_pushes_is_the_one_that_is_pulled(manifests: ModuleType) -> None:
    made = command("docker build -f deploy/Dockerfile -t", " .")
    assert command("docker push") == made
    assert [container(text)["image"] for text in (installed(manifests), PLAIN)] == [made, made]
