"""The alerts of the chart: those of incidents can be left out, because a push to Alertmanager replaces them."""

from __future__ import annotations

from types import ModuleType

import pytest
import yaml

REQUIRED = "settings.bootstrap_server=a:9092,image.repository=registry.example.com/txnwatch"


@pytest.mark.parametrize("has_incidents", [True, False])
def test_the_alerts_that_a_push_replaces_can_be_left_out(manifests: ModuleType, *, has_incidents: bool) -> None:
    rule = f"metrics.prometheusRule.enabled=true,metrics.prometheusRule.incidents={str(has_incidents).lower()}"
    made = yaml.safe_load_all(manifests.rendered("--set", f"{REQUIRED},{rule}"))
    (found,) = (one for one in made if one is not None and one["kind"] == "PrometheusRule")
    expected = ["txnwatch-incidents", "txnwatch-health"] if has_incidents else ["txnwatch-health"]
    assert [group["name"] for group in found["spec"]["groups"]] == expected
