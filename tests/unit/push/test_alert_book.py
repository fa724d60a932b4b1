"""Which alerts are sent when, over a restart too; and an incident as an alert: identity, times and harmless text."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from support.incidents import OPEN_SINCE_MS, a_life, an_event, an_update
from txnwatch.push.alert_book import (
    ALERT_NAMES,
    ENDED_FOR_MS,
    HELD,
    LONGEST_TEXT,
    RENEWALS_MISSED,
    STRAY_FIRES_MS,
    Alert,
    AlertBook,
    SentAlert,
    alert_of,
    from_kept,
    harmless,
    team_of,
    to_kept,
)
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.state.model.incident import AffectedGroup, GroupState, IncidentEvent, WaitingGroup
from txnwatch.state.model.ownership import FoundBy, OwningTeam
from txnwatch.state.model.values import Offset
from txnwatch.state.model.verdicts import Verdict

TARGET = AlertmanagerTarget(name="main", urls=["https://alertmanager.example"])
RESEND_MS = TARGET.resend_ms
NOW_MS = an_event().time_ms


class Peer:
    """A book with its clock, and an Alertmanager that takes everything."""

    def __init__(self, sent: dict[str, SentAlert] | None = None, now_ms: int = NOW_MS) -> None:
        self.now_ms: Any = now_ms
        self.book = AlertBook(functools.partial(form), RESEND_MS, dict(sent or {}))

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


def form(event: IncidentEvent, now_ms: Any) -> Alert:
    return alert_of(event, TARGET, now_ms)


def names(alerts: list[Alert]) -> list[tuple[str, bool]]:
    return [(alert.labels["alertname"], alert.is_firing) for alert in alerts]


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
    assert names(peer.sends(RESEND_MS)) == [("KafkaTransactionLate", True)], "once is enough"


def test_labels_that_changed_during_a_restart_end_the_former_alert_too() -> None:
    peer, (first, late) = Peer(), late_after_long_running()
    peer.take(first)
    peer.sends()
    again = peer.restarted()
    again.take(late)
    assert names(again.sends()) == [("KafkaTransactionLongRunning", False), ("KafkaTransactionLate", True)]


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
    assert alert.sequence == 2


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


FORMED_MS = an_event().time_ms + 10_000
LABELLED_TARGET = AlertmanagerTarget(
    name="main",
    urls=["https://alertmanager.example"],
    labels={"env": "prod"},
    external_url="https://txnwatch.example/base/",
)
HOSTILE = '<!channel> <@U1> @everyone `x` https://evil.example &amp; \x1b[31m \u202e <script>"\n'


def owned(team: str, contact: str | None = None) -> IncidentEvent:
    """An event with an owner."""
    return an_event(owner=OwningTeam(team=team, name="Checkout", contact=contact, found_by=FoundBy.APPLICATION))


def test_every_verdict_has_a_name() -> None:
    assert ALERT_NAMES == {
        "hanging": "KafkaTransactionHanging",
        "stuck_prepare": "KafkaTransactionStuckPrepare",
        "late": "KafkaTransactionLate",
        "long_running": "KafkaTransactionLongRunning",
        "stray_write": "KafkaStrayWrite",
    }


def test_labels_are_the_identity_and_no_client_chooses_one() -> None:
    event = an_event()
    assert alert_of(event, LABELLED_TARGET, FORMED_MS).labels == {
        "env": "prod",
        "alertname": "KafkaTransactionHanging",
        "severity": "critical",
        "cluster": "cluster",
        "topic": "orders",
        "partition": "3",
        "incident": event.incident_id,
        "owner": "none",
    }
    later = an_event(transactional_id="other", age_ms=9, hidden_records=7, sequence=9, status="updated")
    assert (
        alert_of(later, LABELLED_TARGET, FORMED_MS + 60_000).labels
        == alert_of(event, LABELLED_TARGET, FORMED_MS).labels
    )


def test_an_incident_about_a_transaction_has_no_partition() -> None:
    event = an_event(topic=None, partition=None, topic_id=None, verdict="late", severity="warning")
    labels = alert_of(event, LABELLED_TARGET, FORMED_MS).labels
    assert not labels.keys() & {"topic", "partition"}
    assert labels["alertname"] == "KafkaTransactionLate"


def test_an_alert_leads_to_the_incident_and_to_the_runbook() -> None:
    event = an_event()
    alert = alert_of(event, LABELLED_TARGET, FORMED_MS).as_json()
    assert alert["generatorURL"] == f"https://txnwatch.example/base/incident/{event.incident_id}"
    assert alert["annotations"]["runbook_url"].endswith("/docs/runbook.md#hanging")
    assert alert["annotations"]["command"] == event.suggested_command
    assert alert["annotations"]["transactional_id"] == event.transactional_id
    assert (
        "generatorURL"
        not in alert_of(event, LABELLED_TARGET.model_copy(update={"external_url": None}), FORMED_MS).as_json()
    )


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.STRAY_WRITE])
def test_what_does_not_end_by_itself_fires_for_long_without_a_watcher(verdict: Verdict) -> None:
    alert = alert_of(an_event(verdict=verdict), LABELLED_TARGET, FORMED_MS)
    hold_ms = LABELLED_TARGET.hold_ms if verdict in HELD else RENEWALS_MISSED * LABELLED_TARGET.resend_ms
    assert alert.is_firing
    assert alert.ends_ms - FORMED_MS == hold_ms
    assert (verdict in HELD) == (verdict in {Verdict.HANGING, Verdict.STUCK_PREPARE})


def test_an_end_is_the_real_one_and_never_in_the_future_or_before_the_start() -> None:
    over = a_life("incident")[-1]
    assert over.resolution is not None
    for at_ms, expected in ((FORMED_MS - 5, FORMED_MS - 5), (FORMED_MS + 99_000, FORMED_MS), (3, OPEN_SINCE_MS + 1)):
        alert = alert_of(replace(over, resolution=replace(over.resolution, at_ms=at_ms)), LABELLED_TARGET, FORMED_MS)
        assert not alert.is_firing
        assert (alert.starts_ms, alert.ends_ms) == (OPEN_SINCE_MS, expected)


def test_a_start_in_the_future_of_our_clock_is_now() -> None:
    alert = alert_of(an_event(open_since_ms=FORMED_MS + 50_000), LABELLED_TARGET, FORMED_MS)
    assert alert.starts_ms == FORMED_MS


def test_a_stray_write_fires_for_an_hour_whatever_its_status_is() -> None:
    event = an_event(verdict="stray_write", severity="warning")
    until_ms = event.detected_at_ms + STRAY_FIRES_MS
    for now_ms, is_firing in (
        (FORMED_MS, True),
        (until_ms - 1, True),
        (until_ms, False),
        (until_ms + 9_000_000, False),
    ):
        alert = alert_of(event, LABELLED_TARGET, now_ms)
        assert (alert.is_firing, alert.ends_ms) == (is_firing, until_ms)
    forged = replace(event, detected_at_ms=FORMED_MS + 10**12)
    assert alert_of(forged, LABELLED_TARGET, FORMED_MS).ends_ms == FORMED_MS + STRAY_FIRES_MS


def test_times_are_in_the_form_of_the_interface() -> None:
    alert = alert_of(a_life("incident")[-1], LABELLED_TARGET, FORMED_MS).as_json()
    for name in ("startsAt", "endsAt"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", alert[name])


def test_a_hostile_text_is_only_text() -> None:
    shown = harmless(HOSTILE)
    assert shown.isprintable()
    assert not set(shown) & set("<>&@`")
    assert "://" not in shown
    assert shown.startswith("\\x3c!channel\\x3e \\x3c\\x40U1\\x3e \\x40everyone")


@pytest.mark.parametrize("text", ["x" * 32_767, "<" * 32_767, "\u202e" * 32_767])
def test_a_long_text_is_cut(text: str) -> None:
    assert len(harmless(text)) == LONGEST_TEXT
    assert harmless(text).endswith("\u2026")


def test_every_annotation_with_a_foreign_text_is_harmless() -> None:
    groups = tuple(
        AffectedGroup(group_id=f"{HOSTILE}{number}", state=GroupState.STOPPED, committed_offset=Offset(1), hidden_lag=2)
        for number in range(9)
    )
    event = an_event(topic=None, partition=None, topic_id=None, verdict="late", transactional_id=HOSTILE)
    event = replace(event, consumer_groups=groups, waiting_groups=(WaitingGroup(group_id=HOSTILE),))
    annotations = alert_of(event, LABELLED_TARGET, FORMED_MS).annotations
    foreign = "".join(text for name, text in annotations.items() if name not in {"runbook_url", "command"})
    assert foreign.isprintable()
    assert not set(foreign) & set("<>&@`")
    assert "://" not in foreign
    assert "and 7 more" in annotations["description"]
    assert sum(map(len, annotations.values())) < 4_000


@pytest.mark.parametrize("command", ["x" * 1_001, "abort --id '<!channel>'", "a & b", "a\x1b[31m", "a `b`"])
def test_a_command_is_shown_as_it_is_or_not_at_all(command: str) -> None:
    two = "txnwatch fence --id a && txnwatch abort --topic b"
    assert alert_of(an_event(suggested_command=two), LABELLED_TARGET, FORMED_MS).annotations["command"] == two
    annotations = alert_of(an_event(suggested_command=command), LABELLED_TARGET, FORMED_MS).annotations
    assert annotations["command"] == "`txnwatch status` shows it: it cannot be shown here as it is"
    assert "command" not in alert_of(an_event(suggested_command=None), LABELLED_TARGET, FORMED_MS).annotations


@pytest.mark.parametrize("team", ["Checkout", "", "a b", "-a", "x" * 64, "<!here>"])
def test_an_owner_that_is_no_team_is_none(team: str) -> None:
    assert team_of(owned(team)) == "none"


def test_an_owner_is_a_label_and_its_contact_an_annotation() -> None:
    event = owned("checkout", "#checkout <!here>")
    assert team_of(event) == "checkout"
    assert alert_of(event, LABELLED_TARGET, FORMED_MS).annotations["contact"] == "#checkout \\x3c!here\\x3e"
    assert team_of(an_event(owner=None)) == "none"
    assert "contact" not in alert_of(owned("checkout"), LABELLED_TARGET, FORMED_MS).annotations
