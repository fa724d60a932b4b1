"""All targets of a watch: a queue for each web hook and each peer, with a position of its own."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.http_receiver import Says, receiving
from support.incidents import a_life, an_event, id_of
from support.log_lines import LogLines
from support.push_world import START_MS, HandClock, ids_of
from support.waiting import eventually
from txnwatch.push.push_file import AlertmanagerTarget, PushFile, WebhookTarget
from txnwatch.push.targets import PushTargets
from txnwatch.sinks.delivery.outbox import DeliveryCounts, failing_targets
from txnwatch.state.model.incident import SPENT_SEQUENCE, Overwritten
from txnwatch.state.model.ownership import FoundBy, OwningTeam
from txnwatch.state.telling.commands import Origin

_LONG_S = 10.0


def targets_of(directory: Path, clock: HandClock, *urls: str) -> PushTargets:
    hooks = [WebhookTarget(name=f"hook-{number}", url=url) for number, url in enumerate(urls)]
    return PushTargets(PushFile(webhook=hooks), directory, clock, LogLines())


def test_there_is_nothing_before_the_start_and_one_of_each_after_it(tmp_path: Path) -> None:
    alertmanager: Any = AlertmanagerTarget(name="main", urls=["http://127.0.0.1:1/", "http://127.0.0.1:2/"])
    file = PushFile(webhook=[WebhookTarget(name="pager", url="http://127.0.0.1:3/")], alertmanager=[alertmanager])
    targets = PushTargets(file, tmp_path, HandClock(), LogLines())
    assert targets.queues == []
    assert list(tmp_path.iterdir()) == []
    targets.start()
    targets.start()
    try:
        names = ["webhook pager", "alertmanager main 127.0.0.1:1", "alertmanager main 127.0.0.1:2"]
        assert [queue.name for queue in targets.queues] == names
    finally:
        targets.stop()


def test_a_target_that_is_down_delays_no_other_one(tmp_path: Path) -> None:
    with receiving() as slow, receiving() as quick:
        slow.gate.clear()
        targets = targets_of(tmp_path, HandClock(), slow.url, quick.url)
        targets.start()
        try:
            for queue in targets.queues:
                queue.put(a_life("incident"))
            eventually(lambda: len(quick.taken) == 3, _LONG_S, "the events")
            assert len(slow.received) <= 1
        finally:
            slow.gate.set()
            targets.stop()


def test_nothing_is_sent_and_nothing_waits_while_another_instance_speaks(tmp_path: Path) -> None:
    with receiving() as receiver:
        targets = targets_of(tmp_path, HandClock(), receiver.url)
        targets.may_send = lambda: False
        targets.start()
        try:
            (hook,) = targets.queues
            hook.put(a_life("incident"))
            time.sleep(0.3)
            assert receiver.received == []
            assert (hook.waiting, hook.tally, failing_targets([hook])) == (0, DeliveryCounts(0), [])
            targets.may_send = lambda: True
            assert hook.waiting == 3
            hook.take_over([], {})
            eventually(lambda: len(receiver.taken) == 3, _LONG_S, "the events")
        finally:
            targets.stop()


def test_who_falls_silent_sends_no_more_of_its_queue(tmp_path: Path) -> None:
    with receiving() as receiver:
        targets = targets_of(tmp_path, HandClock(), receiver.url)

        def falls_silent(_: object) -> Says:
            targets.may_send = lambda: False
            return Says()

        receiver.usually = falls_silent
        targets.start()
        try:
            (hook,) = targets.queues
            hook.put(a_life("incident"))
            eventually(lambda: hook.tally.delivered == 1, _LONG_S, "the first event")
            time.sleep(0.2)
            assert len(receiver.received) == 1
        finally:
            targets.stop()


def test_a_target_that_fails_is_no_failing_one_while_another_instance_speaks(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.usually = lambda _: Says(503)
        targets = targets_of(tmp_path, HandClock(), receiver.url)
        targets.start()
        try:
            (hook,) = targets.queues
            hook.put(a_life("incident"))
            eventually(lambda: failing_targets([hook]), _LONG_S, "the failure")
            targets.may_send = lambda: False
            assert (hook.waiting, hook.tally.oldest_ms, failing_targets([hook])) == (0, None, [])
        finally:
            targets.stop()


def test_many_targets_that_do_not_answer_do_not_delay_the_end(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.gate.clear()
        targets = targets_of(tmp_path, HandClock(), *[receiver.url] * 4)
        targets.start()
        for queue in targets.queues:
            queue.put([an_event()])
        eventually(lambda: len(receiver.received) == 4, _LONG_S, "a request to each")
        begun = time.monotonic()
        targets.stop()
        assert time.monotonic() - begun < 1.5
        receiver.gate.set()


def test_the_history_passes_as_it_is_and_targets_get_what_they_have_missed(tmp_path: Path) -> None:
    claimed = OwningTeam(team="forged", name="Forged", found_by=FoundBy.TOPIC)
    clock, life = HandClock(START_MS - 1), [replace(event, owner=claimed) for event in a_life("incident")]
    foreign, spent = an_event("foreign", cluster_id="other"), an_event("spent", sequence=SPENT_SEQUENCE)
    history = [life[0], Overwritten(id_of("damaged")), foreign, life[1], spent, life[2]]
    with receiving() as receiver:
        first = targets_of(tmp_path, clock, receiver.url)
        first.start()
        first.stop()
        again = targets_of(tmp_path, clock, receiver.url)
        again.start()
        try:
            assert list(again.seen(history, Origin("cluster", "broker:9092"))) == history
            eventually(lambda: len(receiver.taken) == 3, _LONG_S, "the events")
            eventually(lambda: again.queues[0].waiting == 0, _LONG_S, "an empty queue")
        finally:
            again.stop()
    assert ids_of(receiver.received) == [event.event_id for event in life]
    opened = json.loads(receiver.received[0].body)["data"]["suggested_command"]
    assert opened.startswith("txnwatch explain --topic orders --partition 3"), "built here, and it only reads"
    assert life[0].suggested_command not in opened
    assert json.loads(receiver.received[0].body)["data"]["owner"] is None, "nobody's, by the table of this process"
