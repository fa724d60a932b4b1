"""What every TransactionAdmin answers about the marker that closed a transaction; apart from admin_contract.py by size.

A subclass brings the fixture `stage`, as for AdminContract.
"""

from __future__ import annotations

from contract.admin_contract import AdminStage, marker
from support.topics import unique
from txnwatch.state.model.values import SpanStart, TopicPartition


class ClosingMarkerContract:
    """The suite."""

    def test_the_first_marker_of_the_producer_at_or_after_an_end_closed_the_transaction(
        self, stage: AdminStage
    ) -> None:
        (partition,) = stage.create_topic(unique("closing"))
        owner, other = stage.init(unique("closing")), stage.init(unique("beside"))
        producer_id = owner.producer_id
        stage.stray_write(owner, partition)
        assert stage.admin.closing_marker(SpanStart(partition, producer_id, 0), 1) is None
        assert stage.admin.write_marker(marker(partition, other)) is None
        assert stage.admin.closing_marker(SpanStart(partition, producer_id, 0), 1) is None, (
            "the marker is another producer's"
        )
        for commit in (True, False):
            assert stage.admin.write_marker(marker(partition, owner)._replace(commit=commit)) is None
        found = [stage.admin.closing_marker(SpanStart(partition, producer_id, 0), end) for end in (0, 1, 2, 3, 4, 99)]
        markers = [one.marker if one is not None else None for one in found]
        closed_at = [(one.offset, one.commit) if one is not None else None for one in markers]
        assert closed_at == [(2, True), (2, True), (2, True), (3, False), None, None]
        assert markers[0] is not None
        assert (markers[0].producer_epoch, markers[0].coordinator_epoch) == (owner.producer_epoch, 0)
        assert markers[0].timestamp_ms > 0
        nowhere = TopicPartition(unique("nowhere"), 0)
        assert stage.admin.closing_marker(SpanStart(nowhere, producer_id, 0), 0) is None
        with stage.admin.within(0):
            assert stage.admin.closing_marker(SpanStart(partition, producer_id, 0), 0) is None

    def test_the_newest_data_that_a_closing_marker_has_closed_is_told_by_its_epoch(self, stage: AdminStage) -> None:
        (partition,) = stage.create_topic(unique("newest"))
        name = unique("newest")
        stage.stray_write(stage.init(name), partition)
        stage.stray_write(stage.init(unique("beside")), partition)
        second = stage.init(name)
        newest, start = second.producer_epoch, SpanStart(partition, second.producer_id, 0)
        stage.stray_write(second, partition)
        assert stage.admin.write_marker(marker(partition, second)) is None
        stage.stray_write(stage.init(name), partition)
        found = [stage.admin.closing_marker(start, end) for end in (0, 1, 2, 3)]
        told = [(one.marker.offset, one.data_epoch) if one is not None else None for one in found]
        assert newest == 1
        assert told == [(3, newest), (3, newest), (3, newest), (3, None)]
