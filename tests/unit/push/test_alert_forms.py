"""An incident as an alert: its identity, its times and harmless text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from support.incidents import OPEN_SINCE_MS, a_life, an_event
from txnwatch.push.alertmanager import (
    ALERT_NAMES,
    HELD,
    RENEWALS_MISSED,
    STRAY_FIRES_MS,
    alert_of,
    team_of,
)
from txnwatch.push.message import LONGEST_TEXT, harmless
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.state.model.incident import AffectedGroup, GroupState, IncidentEvent, WaitingGroup
from txnwatch.state.model.ownership import FoundBy, OwningTeam
from txnwatch.state.model.values import Offset, TimestampMs
from txnwatch.state.model.verdicts import Severity, Verdict

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
    assert set(ALERT_NAMES) == set(Verdict)
    assert ALERT_NAMES[Verdict.STUCK_PREPARE] == "KafkaTransactionStuckPrepare"
    assert ALERT_NAMES[Verdict.STRAY_WRITE] == "KafkaStrayWrite", "it is no transaction"


def test_each_renewal_of_an_open_alert_has_its_age_then() -> None:
    """Alertmanager says an alert again hours after the event."""
    event = an_event(age_ms=1_200)

    def since(hours: int, told: IncidentEvent = event) -> str:
        found = alert_of(told, LABELLED_TARGET, TimestampMs(told.time_ms + hours * 3_600_000)).annotations
        assert found["since"] in found["description"]
        return found["since"]

    assert since(0).endswith(" UTC, for 1.2 s.")
    assert since(4).endswith(" UTC, for 4 h 00 min.")
    over = a_life("x")[-1]
    assert since(0, over) == since(1, over), "what is over does not get older"


def test_a_phone_number_can_be_dialled_as_it_is_shown() -> None:
    alert = alert_of(owned("checkout", "+49 30 1234"), LABELLED_TARGET, FORMED_MS)
    assert alert.annotations["contact"] == "+49 30 1234"
    assert alert.annotations["whom"] == "Owner: Checkout (+49 30 1234)."


def test_labels_are_the_identity_and_no_client_chooses_one() -> None:
    event = an_event()
    assert alert_of(event, LABELLED_TARGET, FORMED_MS).labels == {
        "env": "prod",
        "alertname": "KafkaTransactionHanging",
        "severity": "critical",
        "cluster": "cluster",
        "reason": "already_completed",
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


def test_the_label_cluster_is_the_name_of_the_cluster() -> None:
    assert alert_of(an_event(cluster_name="payments-eu"), LABELLED_TARGET, FORMED_MS).labels["cluster"] == "payments-eu"


def test_an_incident_about_a_transaction_has_no_partition() -> None:
    event = an_event(topic=None, partition=None, topic_id=None, verdict="late", severity="warning")
    labels = alert_of(event, LABELLED_TARGET, FORMED_MS).labels
    assert not labels.keys() & {"topic", "partition"}
    assert (labels["alertname"], labels["id_prefix"]) == ("KafkaTransactionLate", "payments-\u00fc")
    nameless = replace(event, transactional_id=None, reason=None)
    labels = alert_of(nameless, LABELLED_TARGET, FORMED_MS).labels
    assert "id_prefix" not in labels
    assert labels["reason"] == "none"


def test_alerts_of_one_cause_share_the_labels_of_their_group() -> None:
    whole = {"topic": None, "partition": None, "topic_id": None, "verdict": "late", "reason": None}
    ids = ("dwh-orders-1-4", "dwh-orders-22-4", "audit-1")
    found = [alert_of(an_event(one, transactional_id=one, **whole), LABELLED_TARGET, FORMED_MS).labels for one in ids]
    groups = [{name: text for name, text in labels.items() if name != "incident"} for labels in found]
    assert groups[0] == groups[1] != groups[2]
    assert groups[0]["id_prefix"] == "dwh-orders"


def test_the_prefix_of_a_hostile_id_is_only_text() -> None:
    event = an_event(topic=None, partition=None, topic_id=None, transactional_id=f"{HOSTILE}.evil.example-1")
    shown = alert_of(event, LABELLED_TARGET, FORMED_MS).labels["id_prefix"]
    assert shown.isprintable()
    assert not set(shown) & set("<>&@`")
    assert len(shown) <= 80


def test_the_parts_of_the_description_are_annotations_too() -> None:
    annotations = alert_of(an_event(), LABELLED_TARGET, FORMED_MS).annotations
    for part in ("since", "holds", "whom", "hurt", "why", "safe", "next"):
        assert annotations[part] in annotations["description"]
    assert "ends" not in annotations
    over = alert_of(a_life("incident")[-1], LABELLED_TARGET, FORMED_MS).annotations
    assert over["ends"].startswith("It is over: ")
    assert not over.keys() & {"safe", "next", "then"}


def test_what_is_only_info_is_no_alert_unless_it_is_asked_for() -> None:
    event = an_event(verdict="long_running", severity="info")
    assert not alert_of(event, LABELLED_TARGET, FORMED_MS).is_firing
    asked = LABELLED_TARGET.model_copy(update={"least_severity": Severity.INFO})
    assert alert_of(event, asked, FORMED_MS).is_firing


def test_an_alert_leads_to_the_incident_and_to_the_runbook() -> None:
    event = an_event()
    alert = alert_of(event, LABELLED_TARGET, FORMED_MS).as_json()
    assert alert["generatorURL"] == f"https://txnwatch.example/base/incident/{event.incident_id}"
    assert alert["annotations"]["runbook_url"].endswith("/docs/runbook.md#hanging")
    assert alert["annotations"]["page_url"] == alert["generatorURL"]
    assert alert["annotations"]["command"] == event.suggested_command
    assert alert["annotations"]["transactional_id"] == event.transactional_id
    assert (
        "generatorURL"
        not in alert_of(event, LABELLED_TARGET.model_copy(update={"external_url": None}), FORMED_MS).as_json()
    )


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.STRAY_WRITE])
def test_what_does_not_end_by_itself_fires_for_long_without_a_watcher(verdict: Verdict) -> None:
    target = LABELLED_TARGET.model_copy(update={"least_severity": Severity.INFO})
    alert = alert_of(an_event(verdict=verdict), target, FORMED_MS)
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
    assert LONGEST_TEXT - 10 <= len(harmless(text)) <= LONGEST_TEXT, "no escape is cut"
    assert harmless(text).endswith("\u2026")


def test_every_annotation_with_a_foreign_text_is_harmless() -> None:
    groups = tuple(
        AffectedGroup(group_id=f"{HOSTILE}{number}", state=GroupState.STOPPED, committed_offset=Offset(1), hidden_lag=2)
        for number in range(9)
    )
    event = an_event(topic=None, partition=None, topic_id=None, verdict="late", transactional_id=HOSTILE)
    event = replace(event, consumer_groups=groups, waiting_groups=(WaitingGroup(group_id=HOSTILE),))
    annotations = alert_of(event, LABELLED_TARGET, FORMED_MS).annotations
    own = {"runbook_url", "page_url", "command"}
    foreign = "".join(text for name, text in annotations.items() if name not in own)
    assert foreign.replace("\n", "").isprintable()
    assert not set(foreign) & set("<>&@`")
    assert "://" not in foreign
    assert "and 6 more" in annotations["description"]
    assert sum(map(len, annotations.values())) < 10_000, "the description, and its parts once more"


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
