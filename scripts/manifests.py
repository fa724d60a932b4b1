"""Writes the plain manifests of deploy/k8s from the chart: `make manifests`.

They are what `helm template` makes with deploy/helm/plain.yaml. The two labels that name Helm are left out, because
kubectl applies the manifests.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from support.kubernetes_tools import KUBERNETES_VERSION, helm

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "txnwatch"
PLAIN = ROOT / "deploy" / "helm" / "plain.yaml"
_HELM_LABEL = re.compile(r"^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", flags=re.MULTILINE)
_OPERATOR = "apiVersion: monitoring.coreos.com/"
_HEADERS = {
    "txnwatch.yaml": """\
# Written by `make manifests` from deploy/helm/txnwatch. docs/kubernetes.md describes it.
# The Secret is not here. Put the Java client properties of txnwatch's user into a file, and make it:
#   kubectl create secret generic txnwatch --from-file=client.properties
# Replace the registry of the image, the bootstrap servers, and their ports in the NetworkPolicy. Then:
#   kubectl apply -f deploy/k8s/txnwatch.yaml
""",
    "prometheus-operator.yaml": """\
# Written by `make manifests` from deploy/helm/txnwatch. It needs the Prometheus operator.
#   kubectl apply -f deploy/k8s/prometheus-operator.yaml
""",
}


def rendered(*args: str) -> str:
    """What `helm template` writes for a release that is named txnwatch.

    Raises:
        UnavailableError: helm is not available.
        CalledProcessError: helm rejects the values; stderr has the reason.
    """
    command = [str(helm()), "template", "txnwatch", str(CHART), "--kube-version", KUBERNETES_VERSION, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - fixed arguments


def manifests() -> dict[str, str]:
    """The content of each file in deploy/k8s."""
    parts = [part for part in rendered("--values", str(PLAIN)).split("---\n") if part.strip()]
    chosen = {
        "txnwatch.yaml": [part for part in parts if _OPERATOR not in part],
        "prometheus-operator.yaml": [part for part in parts if _OPERATOR in part],
    }
    return {name: _HEADERS[name] + "---\n" + _HELM_LABEL.sub("", "---\n".join(chosen[name])) for name in chosen}


def main() -> None:
    """Writes the files."""
    for name, text in manifests().items():
        (ROOT / "deploy" / "k8s" / name).write_text(text)


if __name__ == "__main__":
    main()
