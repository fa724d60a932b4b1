"""Which alerts are sent when, over a restart too."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import pytest

from support.incidents import a_life, an_event, an_update
from txnwatch.push.alertmanager import (
    ENDED_FOR_MS,
    STRAY_FIRES_MS,
    Alert,
    AlertBook,
    SentAlert,
    alert_of,
    from_kept,
    to_kept,
)
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import FoundBy, OwningTeam

TARGET = AlertmanagerTarget(name="main", urls=["https://alertmanager.example"], least_severity="info")
USUAL_TARGET = AlertmanagerTarget(name="main", urls=["https://alertmanager.example"])
RESEND_MS = TARGET.resend_ms
NOW_MS = an_event().time_ms


class Peer:
    """A book with its clock, and an Alertmanager that takes everything."""

    def __init__(
        self, sent: dict[str, SentAlert] | None = None, now_ms: int = NOW_MS, target: AlertmanagerTarget = TARGET
    ) -> None:
        self.now_ms: Any = now_ms
        form = functools.partial(formed, target)
        self.book = AlertBook(form, RESEND_MS, dict(sent or {}), target.wants)

    def take(self, event: IncidentEvent) -> None:
        self.book.take(event, self.now_ms)

    def sends(self, after_ms: int = 0) -> list[Alert]:
        self.now_ms += after_ms
        alerts = self.book.due(self.now_ms, 64)
        self.book.taken(alerts, self.now_ms)
        return alerts

    def restarted(self) -> Peer:
        kept = {key: json.loads(json.dumps(to_kept(sent))) for key, sent in self.book.sent.items()}
        found = {key: from_kept(value) for key, value in kept.items()}
        return Peer({key: sent for key, sent in found.items() if sent is not None}, self.now_ms)


def formed(target: AlertmanagerTarget, event: IncidentEvent, now_ms: Any) -> Alert:
    return alert_of(event, target, now_ms)


def names(alerts: list[Alert]) -> list[tuple[str, bool]]:
    return [(alert.labels["alertname"], alert.is_firing) for alert in alerts]


def owners(alerts: list[Alert]) -> list[tuple[str, bool]]:
    return [(alert.labels["owner"], alert.is_firing) for alert in alerts]


def owned_by(team: str, event: IncidentEvent) -> IncidentEvent:
    return replace(event, owner=OwningTeam(team=team, name=team, found_by=FoundBy.TOPIC))


def late_after_long_running() -> tuple[IncidentEvent, IncidentEvent]:
    values = {"topic": None, "partition": None, "topic_id": None}
    first = an_event(verdict="long_running", severity="info", **values)
    return first, an_update(first, NOW_MS + 5, verdict="late", severity="warning")


def test_an_open_incident_is_sent_at_once_and_renewed_before_it_ends() -> None:
    peer = Peer()
    peer.take(an_event())
    assert peer.book.waiting == 1
    assert names(peer.sends()) == [("KafkaTransactionHanging", True)]
    assert peer.book.waiting == 0
    assert peer.sends(RESEND_MS - 1) == []
    assert peer.book.next_ms() == peer.now_ms + 1
    (renewed,) = peer.sends(1)
    assert renewed.ends_ms == peer.now_ms + TARGET.hold_ms


def test_an_update_is_sent_at_once() -> None:
    peer, event = Peer(), an_event()
    peer.take(event)
    peer.sends()
    peer.take(an_update(event, NOW_MS + 1, hidden_records=99))
    (alert,) = peer.sends(1)
    assert "99 records" in alert.annotations["description"]


def test_an_older_event_changes_nothing() -> None:
    peer, life = Peer(), a_life("incident")
    peer.take(life[2])
    peer.take(life[0])
    assert names(peer.sends()) == [("KafkaTransactionHanging", False)]


def test_an_end_is_sent_again_for_a_quarter_of_an_hour_and_then_forgotten() -> None:
    peer, life = Peer(), a_life("incident")
    peer.take(life[0])
    peer.sends()
    peer.take(life[2])
    sent = [peer.sends(RESEND_MS) for _ in range(20)]
    assert [len(alerts) for alerts in sent] == [1] * 16 + [0] * 4
    assert not any(alert.is_firing for alerts in sent for alert in alerts)
    assert len({alert.ends_ms for alerts in sent for alert in alerts}) == 1, "it is the real end, each time"
    assert peer.book.sent == {}
    assert peer.book.next_ms() is None
    assert ENDED_FOR_MS == 15 * RESEND_MS


def test_changed_labels_end_the_former_alert_first() -> None:
    peer, (first, late) = Peer(), late_after_long_running()
    peer.take(first)
    peer.sends()
    peer.take(late)
    former, new = peer.sends(10)
    assert names([former, new]) == [("KafkaTransactionLongRunning", False), ("KafkaTransactionLate", True)]
    assert former.ends_ms == peer.now_ms
    assert former.annotations["summary"].endswith(": Kafka transaction late: not over")
    other = "another alert stands for it: KafkaTransactionLate, owner none."
    assert former.annotations["description"] == f"It is not over. Its verdict or its owner has changed: {other}"
    assert not former.annotations.keys() & {"command", "safe", "next", "why"}
    assert "command" in new.annotations
    assert names(peer.sends(RESEND_MS)) == [("KafkaTransactionLate", True)], "once is enough"


def test_what_is_only_info_is_not_sent() -> None:
    peer, (first, late) = Peer(target=USUAL_TARGET), late_after_long_running()
    peer.take(first)
    assert (peer.sends(), peer.book.waiting, peer.book.next_ms()) == ([], 0, None)
    peer.take(late)
    assert names(peer.sends()) == [("KafkaTransactionLate", True)]
    peer.take(an_update(late, NOW_MS + 9, verdict="long_running", severity="info"))
    (ended,) = peer.sends(10)
    assert names([ended]) == [("KafkaTransactionLate", False)], "what has fired is what ends"
    assert ended.annotations["description"] == "It is not over. It is only info now, and nobody is alerted about that."
    assert peer.sends(ENDED_FOR_MS + RESEND_MS) != []
    assert peer.book.next_ms() is None, "and it is forgotten"


def test_what_becomes_info_before_it_was_sent_is_not_sent() -> None:
    peer, (_, late) = Peer(target=USUAL_TARGET), late_after_long_running()
    peer.take(late)
    peer.take(an_update(late, NOW_MS + 9, verdict="long_running", severity="info"))
    assert (peer.sends(), peer.book.waiting) == ([], 0)


def test_labels_that_changed_during_a_restart_end_the_former_alert_too() -> None:
    peer, (first, late) = Peer(), late_after_long_running()
    peer.take(first)
    peer.sends()
    again = peer.restarted()
    again.take(late)
    assert names(again.sends()) == [("KafkaTransactionLongRunning", False), ("KafkaTransactionLate", True)]


def test_the_same_event_with_a_new_owner_moves_the_alert() -> None:
    peer, event = Peer(), owned_by("first", an_event())
    peer.take(event)
    peer.sends()
    peer.take(event)
    assert peer.sends() == [], "the same again is no news"
    peer.take(owned_by("second", event))
    former, new = peer.sends(10)
    assert owners([former, new]) == [("first", False), ("second", True)]
    assert former.ends_ms == peer.now_ms
    assert owners(peer.sends(RESEND_MS)) == [("second", True)]
    peer.take(replace(owned_by("first", event), sequence=event.sequence - 1))
    assert owners(peer.sends(RESEND_MS)) == [("second", True)], "an older event has no say"


def test_a_new_owner_after_the_end_starts_no_alert_for_the_new_team() -> None:
    peer, life = Peer(), [owned_by("first", event) for event in a_life("incident")]
    peer.take(life[0])
    peer.sends()
    peer.take(life[2])
    peer.sends()
    peer.take(owned_by("second", life[2]))
    assert owners(peer.sends(RESEND_MS)) == [("first", False)]


def test_a_restart_renews_what_is_open_and_ends_what_has_ended_meanwhile() -> None:
    peer = Peer()
    lives = [a_life("one"), a_life("other")]
    for life in lives:
        peer.take(life[0])
    peer.sends()
    again = peer.restarted()
    again.now_ms += 3_600_000  # the end was long ago, but Alertmanager has not heard of it
    again.take(lives[0][0])
    again.take(lives[1][2])
    assert again.book.waiting == 1, "only the end is news"
    assert names(again.sends()) == [("KafkaTransactionHanging", False), ("KafkaTransactionHanging", True)]


def test_an_end_that_was_told_is_not_told_again_after_a_restart() -> None:
    peer, life = Peer(), a_life("incident")
    peer.take(life[0])
    peer.sends()
    peer.take(life[2])
    peer.sends()
    again = peer.restarted()
    again.now_ms += ENDED_FOR_MS
    again.take(life[2])
    assert again.sends() == []


def test_an_incident_that_ended_before_anybody_was_told_is_no_alert() -> None:
    peer = Peer(now_ms=NOW_MS + 10 * ENDED_FOR_MS)
    peer.take(a_life("incident")[2])
    assert peer.sends() == []
    assert peer.book.waiting == 0


def test_a_stray_write_ends_after_an_hour_and_stays_ended() -> None:
    peer, event = Peer(), an_event(verdict="stray_write", severity="warning")
    peer.take(event)
    assert names(peer.sends()) == [("KafkaStrayWrite", True)]
    assert names(peer.sends(STRAY_FIRES_MS)) == [("KafkaStrayWrite", False)]
    for _ in range(20):
        peer.sends(RESEND_MS)
    assert peer.book.next_ms() is None
    peer.take(event)
    assert peer.sends() == [], "the mirror is filled again at each start of the query"


def test_news_come_before_renewals() -> None:
    peer = Peer()
    for number in range(100):
        peer.take(an_event(f"incident {number}"))
    peer.sends()
    peer.sends()
    peer.now_ms += RESEND_MS
    peer.take(an_event("new"))
    alerts = peer.book.due(peer.now_ms, 64)
    assert alerts[0].incident_id == an_event("new").incident_id
    assert len(alerts) == 64


def test_an_event_that_comes_during_a_delivery_is_not_lost() -> None:
    peer, event = Peer(), an_event()
    peer.take(event)
    alerts = peer.book.due(peer.now_ms, 64)
    peer.take(an_update(event, NOW_MS + 1, hidden_records=99))
    peer.book.taken(alerts, peer.now_ms)
    assert peer.book.waiting == 1
    (alert,) = peer.sends()
    assert alert.event.sequence == 2


def test_a_new_owner_that_comes_during_a_delivery_does_not_wait_for_the_renewal() -> None:
    peer, event = Peer(), owned_by("first", an_event())
    peer.take(event)
    alerts = peer.book.due(peer.now_ms, 64)
    peer.take(owned_by("second", event))
    peer.book.taken(alerts, peer.now_ms)
    assert owners(peer.sends()) == [("first", False), ("second", True)]
    assert peer.sends() == []


def test_what_is_refused_waits_for_the_next_renewal() -> None:
    peer = Peer()
    peer.take(an_event())
    peer.book.give_up(peer.book.due(peer.now_ms, 64), peer.now_ms)
    assert peer.sends() == []
    assert peer.book.waiting == 0
    assert len(peer.sends(RESEND_MS)) == 1


@pytest.mark.parametrize("value", [None, 5, [], [1, {}, 3], ["x", {}, 3, None], [1, [], 3, None], [1, {}, 3, "x"]])
def test_a_kept_value_that_is_none_is_left_out(value: object) -> None:
    assert from_kept(value) is None


def test_a_form_that_differs_only_in_its_annotations_keeps_its_labels() -> None:
    peer, event = Peer(), an_event()
    peer.take(event)
    peer.sends()
    before = dict(peer.book.sent)
    peer.take(replace(an_update(event, NOW_MS + 1), hidden_records=5))
    peer.sends()
    ((_, sent),) = before.items()
    assert [one.labels for one in peer.book.sent.values()] == [sent.labels]


@pytest.mark.parametrize("is_taken", [True, False])
def test_the_answer_about_an_incident_that_was_dropped_meanwhile_changes_nothing(*, is_taken: bool) -> None:
    peer = Peer()
    peer.take(an_event())
    under_way = peer.book.due(peer.now_ms, 64)
    peer.book.forget_events()
    if is_taken:
        assert peer.book.taken(under_way, peer.now_ms) == []
    else:
        peer.book.give_up(under_way, peer.now_ms)
    assert peer.book.next_ms() is None
    peer.take(an_event())
    assert len(peer.sends()) == 1
