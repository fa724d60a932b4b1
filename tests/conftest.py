"""Marks by directory, and what every test session shows in its header."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from support.audit_proofs import PROOFS
from support.bad_inputs import BadInputs
from support.matrices import rows_between
from support.seeds import in_proportion
from support.units import UnitScheduling

# The same examples on every run; HYPOTHESIS_PROFILE=explore looks for new ones. A busy machine may be slow.
_ON_A_BUSY_MACHINE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", **_ON_A_BUSY_MACHINE, derandomize=True, max_examples=in_proportion(40))
settings.register_profile("explore", **_ON_A_BUSY_MACHINE, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

pytest.register_assert_rewrite("contract")  # the suites' modules are imported by the tests that run them
pytest_plugins = ["support.servers", "support.shared_watch"]

_LAYERS = {
    "unit": "unit",
    "property": "unit",
    "simulation": "unit",
    "browser": "integration",
    "contract": "integration",
    "integration": "integration",
    "e2e": "e2e",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-results", type=Path, default=None, help="JSON file for what the faults came to")
    parser.addoption("--audit-results", type=Path, default=None, help="JSON file for which checks of the audit fired")
    parser.addoption("--ways-results", type=Path, default=None, help="JSON file for which commands worked, by way in")
    parser.addoption("--stop-results", type=Path, default=None, help="JSON file for how long a stop took, by situation")
    parser.addoption("--takeover-results", type=Path, default=None, help="JSON file for how long nobody speaks")
    parser.addoption("--cluster-results", type=Path, default=None, help="JSON file for the times on a Spark cluster")
    parser.addoption("--bad-input-results", type=Path, default=None, help="JSON file for what is said about bad input")
    parser.addoption("--page-pictures", type=Path, default=None, help="directory for the pictures of the page")
    parser.addoption("--write-comparison", action="store_true", help="write docs/kafka-transactions.md")


def pytest_configure(config: pytest.Config) -> None:
    PROOFS.path = config.getoption("--audit-results")


@pytest.fixture
def bad_inputs(request: pytest.FixtureRequest) -> BadInputs:
    """Keeps what is said about the input of the test, whose name is that of the test or of its parameter."""
    parameters = getattr(request.node, "callspec", None)
    name = parameters.id if parameters is not None else request.node.originalname.removeprefix("test_")
    return BadInputs(request.config.getoption("--bad-input-results"), name.replace("_", " "))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--bad-input-results") is not None:
        items[:] = [item for item in items if "bad_inputs" in getattr(item, "fixturenames", ())]
    here = Path(__file__).parent
    for item in items:
        layer = _LAYERS.get(item.path.relative_to(here).parts[0])
        if layer is not None:
            item.add_marker(layer)
    for row in rows_between(items):
        row.add_marker("long")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitScheduling:
    """A worker gets one unit after the other, in the order of the session."""
    config.option.loadscopereorder = False
    return UnitScheduling(config, log)


def pytest_report_header() -> list[str]:
    packages = ("pyspark", "pyarrow", "kafka-python", "confluent-kafka", "redis", "fastavro", "hypothesis")
    return [", ".join(f"{name} {version(name)}" for name in packages)]
