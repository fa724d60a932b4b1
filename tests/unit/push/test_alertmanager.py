"""One peer: what arrives over HTTP, and what a peer that is down, refuses or is gone gets later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.http_receiver import ReceivedRequest, Receiver, Says, receiving
from support.incidents import a_life, an_event, an_update
from support.log_lines import LogLines
from support.push_world import START_MS, HandClock
from support.waiting import eventually
from txnwatch.push.alertmanager import ENDED_FOR_MS, AlertmanagerPeer
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.push.sender import Journal
from txnwatch.state.model.values import DAY_MS

_LONG_S = 10.0
LATE_MS = 400_000


@contextmanager
def a_peer(receiver: Receiver, directory: Path, clock: HandClock, log: LogLines) -> Iterator[AlertmanagerPeer]:
    target = AlertmanagerTarget(name="main", urls=[f"{receiver.url}/prefix"])
    journal = Journal(directory / "sent", log.warning)
    peer = AlertmanagerPeer(target, target.addresses[0], journal, clock, log)
    peer.start()
    try:
        yield peer
    finally:
        peer.stop(1.0)


def alerts_of(received: list[ReceivedRequest]) -> list[Any]:
    return [alert for request in received for alert in json.loads(request.body)]


def passes(peer: AlertmanagerPeer, clock: HandClock, by_ms: int = LATE_MS) -> None:
    clock.now_ms += by_ms
    peer.put([])


def delivered(peer: AlertmanagerPeer, count: int) -> None:
    eventually(lambda: peer.tally.delivered == count, _LONG_S, f"{count} events")


def test_alerts_go_to_the_interface_below_the_url(tmp_path: Path) -> None:
    with receiving() as receiver, a_peer(receiver, tmp_path, HandClock(), LogLines()) as peer:
        peer.put([an_event("one"), an_event("other")])
        delivered(peer, 2)
    request = receiver.received[0]
    assert (request.method, request.path) == ("POST", "/prefix/api/v2/alerts")
    assert request.headers["content-type"] == "application/json"
    assert {alert["labels"]["incident"] for alert in alerts_of(receiver.received)} == {
        an_event("one").incident_id,
        an_event("other").incident_id,
    }


def test_many_alerts_go_in_parts(tmp_path: Path) -> None:
    with receiving() as receiver, a_peer(receiver, tmp_path, HandClock(), LogLines()) as peer:
        peer.put([an_event(f"incident {number}") for number in range(200)])
        delivered(peer, 200)
    assert max(len(json.loads(request.body)) for request in receiver.received) == 64


def test_a_peer_that_is_down_gets_the_incidents_as_they_are_then(tmp_path: Path) -> None:
    clock, log, life = HandClock(), LogLines(), a_life("over meanwhile")
    with receiving() as receiver, a_peer(receiver, tmp_path, clock, log) as peer:
        receiver.stop()
        peer.put([an_event()])
        eventually(lambda: peer.failures == 1, _LONG_S, "the failure")
        for event in life:
            peer.put([event])
        peer.put([an_update(an_event(), START_MS + 1, hidden_records=99)])
        assert peer.waiting == 2
        assert peer.tally.oldest_ms == START_MS
        receiver.start()
        passes(peer, clock)
        delivered(peer, 2)
    found = {alert["labels"]["incident"]: alert for alert in alerts_of(receiver.taken)}
    assert "99 records" in found[an_event().incident_id]["annotations"]["description"]
    assert found[life[0].incident_id]["endsAt"] < found[an_event().incident_id]["endsAt"]
    assert [line for line in log if "takes events again" in line]


def test_one_alert_that_is_refused_does_not_keep_the_others(tmp_path: Path) -> None:
    clock, log = HandClock(), LogLines()
    bad, good = an_event("bad"), an_event("good")

    def answer(request: ReceivedRequest) -> Says:
        refused = any(alert["labels"]["incident"] == bad.incident_id for alert in json.loads(request.body))
        return Says(400 if refused else 200)

    with receiving() as receiver:
        receiver.usually = answer
        with a_peer(receiver, tmp_path, clock, log) as peer:
            peer.put([bad, good])
            for failures in range(1, 4):
                eventually(lambda: peer.failures == failures, _LONG_S, "a refusal")  # noqa: B023 - called at once
                passes(peer, clock, 31_000)
            delivered(peer, 1)
            assert peer.tally.refused == 1
            assert peer.waiting == 0
            assert any(f"the alert of incident {bad.incident_id} is refused" in line for line in log)
    assert {alert["labels"]["incident"] for alert in alerts_of(receiver.taken)} == {good.incident_id}


def test_a_peer_that_is_gone_gets_nothing_more(tmp_path: Path) -> None:
    clock = HandClock()
    with receiving() as receiver, a_peer(receiver, tmp_path, clock, LogLines()) as peer:
        receiver.answers = [Says(410)]
        peer.put([an_event()])
        eventually(lambda: peer.tally.is_stopped, _LONG_S, "the end")
        peer.put([an_event("other")])
        passes(peer, clock)
        peer.stop(1.0)
        assert len(receiver.received) == 1


def test_a_restart_ends_what_ended_meanwhile_and_stops_nothing_by_its_own_end(tmp_path: Path) -> None:
    clock, life = HandClock(), a_life("incident")
    with receiving() as receiver:
        with a_peer(receiver, tmp_path, clock, LogLines()) as peer:
            peer.put(life[:1])
            delivered(peer, 1)
        first = alerts_of(receiver.received)
        assert len(first) == 1, "the end of the process ends no alert"
        clock.now_ms += 7_200_000
        with a_peer(receiver, tmp_path, clock, LogLines()) as peer:
            peer.put([life[2]])
            delivered(peer, 1)
    (end,) = alerts_of(receiver.received)[1:]
    assert end["labels"] == first[0]["labels"]
    assert end["endsAt"] < first[0]["endsAt"]


def test_an_alert_of_an_incident_that_another_instance_has_ended_long_ago_is_renewed_no_more(tmp_path: Path) -> None:
    clock, still_open = HandClock(), an_event("still open")
    with receiving() as receiver, a_peer(receiver, tmp_path, clock, LogLines()) as peer:
        peer.put([an_event("over"), still_open])
        delivered(peer, 2)
        clock.now_ms += 2 * DAY_MS
        peer.others_told()
        peer.take_over([still_open], {})
        eventually(lambda: len(receiver.taken) == 2, _LONG_S, "the renewal")
    assert [alert["labels"]["incident"] for alert in alerts_of(receiver.taken[1:])] == [still_open.incident_id]


def test_an_end_that_another_instance_has_told_is_told_as_the_same_alert_or_not_at_all(tmp_path: Path) -> None:
    clock, life = HandClock(), a_life("incident")
    directories = [tmp_path / name for name in ("one", "two", "late")]
    with receiving() as receiver:
        for directory in directories:
            directory.mkdir()
        with a_peer(receiver, directories[0], clock, LogLines()) as peer:
            for number, event in enumerate(life, 1):
                peer.put([event])
                delivered(peer, number)
        told, over = alerts_of(receiver.taken), life[-1]
        with a_peer(receiver, directories[1], clock, LogLines()) as peer:
            peer.others_told()
            peer.take_over([over], {})
            delivered(peer, 1)
        clock.now_ms += ENDED_FOR_MS + over.time_ms
        with a_peer(receiver, directories[2], clock, LogLines()) as peer:
            peer.others_told()
            peer.take_over([over], {})
            assert peer.waiting == 0
    again = alerts_of(receiver.taken)[len(told) :]
    assert again == told[-1:]
