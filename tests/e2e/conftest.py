"""What tests of whole processes share."""

from __future__ import annotations

import pytest

from support.stop_times import StopTimes


@pytest.fixture
def stop_times(request: pytest.FixtureRequest) -> StopTimes:
    return StopTimes(request.config.getoption("--stop-results"))
