"""What an earlier query wanted of the source means nothing to the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.app import SourceLink
from txnwatch.state.model.errors import QueryError
from txnwatch.streaming.source.driver_file import DriverRequests, read_driver_file


def test_a_query_begins_without_what_an_earlier_one_wanted(tmp_path: Path) -> None:
    file = tmp_path / "driver.json"
    file.write_text('{"requests":[["orders-0",7,""]],"next_due":null,"volumes":{}}')
    assert read_driver_file(str(file)) != DriverRequests()
    link = SourceLink(file)
    link.begin(is_rebuilt=True)
    assert link.is_rebuilt
    assert read_driver_file(str(file)) == DriverRequests()


def test_a_disk_that_takes_no_file_is_an_error_that_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "driver.json"
    file.mkdir()
    with pytest.raises(QueryError, match=f"{file} cannot be written: Is a directory"):
        SourceLink(file).begin(is_rebuilt=False)
