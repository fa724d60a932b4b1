"""What tests of whole processes share."""

from __future__ import annotations

import pytest

from support.cluster_times import ClusterTimes
from support.stop_times import StopTimes


@pytest.fixture
def stop_times(request: pytest.FixtureRequest) -> StopTimes:
    return StopTimes(request.config.getoption("--stop-results"))


@pytest.fixture
def cluster_times(request: pytest.FixtureRequest) -> ClusterTimes:
    return ClusterTimes(request.config.getoption("--cluster-results"))
