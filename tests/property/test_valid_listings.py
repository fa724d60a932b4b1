"""The valid listings of a batch's census, looked up by partition, against all of them written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.strategies import censuses, data_partitions, notices
from txnwatch.state.detection.batch import ValidListings
from txnwatch.state.model.facts import KEEPS_WHAT_IS_KNOWN, CensusListing, CensusTaken, NoticeKind, PartitionNotice
from txnwatch.state.model.values import TopicPartition


def all_valid(
    taken: list[CensusTaken], noticed: list[PartitionNotice]
) -> Iterator[tuple[TopicPartition, CensusListing]]:
    """Each partition of the census with its listing, if nothing that was noticed makes it invalid."""
    for census in taken:
        for partition, listing in census.taken.items():
            there = [notice for notice in noticed if notice.partition == partition]
            kinds = {notice.kind for notice in there}
            harmless = {NoticeKind.GAP, NoticeKind.DELETED} if listing.is_scanned else KEEPS_WHAT_IS_KNOWN
            if kinds - harmless - ({NoticeKind.LOST, NoticeKind.DELETED} if not listing.is_scanned else set()):
                continue
            if any(notice.kind is NoticeKind.DELETED and notice.topic_id == listing.topic_id for notice in there):
                continue
            is_planned = listing.is_scanned and NoticeKind.GAP in kinds
            yield partition, listing._replace(is_scanned=False, is_behind=True) if is_planned else listing


def check(taken: list[CensusTaken], noticed: list[PartitionNotice], partitions: set[TopicPartition]) -> None:
    valid_listings, expected = ValidListings(taken, noticed), dict(all_valid(taken, noticed))
    assert {p: valid_listings.of(p) for p in partitions} == {p: expected.get(p) for p in partitions}
    described = {p for census in taken for p in census.taken}
    assert valid_listings.described(dict.fromkeys(partitions).keys()) == described & partitions
    known = described | {p for census in taken for p in census.failed} | {notice.partition for notice in noticed}
    is_round = any(census.is_round for census in taken)
    assert valid_listings.missing(partitions) == (partitions - known if is_round else set())


parts = st.lists(censuses, max_size=3), st.lists(notices, max_size=3), st.sets(data_partitions)


@given(*parts)
def test_a_lookup_finds_what_the_whole_has(
    taken: list[CensusTaken], noticed: list[PartitionNotice], partitions: set[TopicPartition]
) -> None:
    check(taken, noticed, partitions)


@settings(phases=[Phase.generate], report_multiple_bugs=False)  # found is sufficient, it need not be small
@given(*parts)
def _looked_up(taken: list[CensusTaken], noticed: list[PartitionNotice], partitions: set[TopicPartition]) -> None:
    check(taken, noticed, partitions)


def first_one(valid_listings: ValidListings, partition: TopicPartition) -> CensusListing | None:
    return next((census.taken[partition] for census in valid_listings._censuses if partition in census.taken), None)


def none_missing(*_: object) -> set[TopicPartition]:
    return set()


@pytest.mark.parametrize(("name", "bug"), [("of", first_one), ("missing", none_missing)])
def test_a_planted_bug_is_found(name: str, bug: Callable[..., object]) -> None:
    with mock.patch.object(ValidListings, name, bug), pytest.raises(AssertionError):
        _looked_up()
