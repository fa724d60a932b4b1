"""Names that clients choose are only text in a chat: in Slack's mrkdwn and in Markdown with its common extensions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from support.incidents import an_event
from txnwatch.push import message
from txnwatch.push.alertmanager import alert_of
from txnwatch.push.digest import text_of
from txnwatch.push.message import LONGEST_COMMAND, harmless
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.state.model.incident import AffectedGroup, GroupState, IncidentEvent, WaitingGroup
from txnwatch.state.model.values import Offset, is_topic_name

TARGET = AlertmanagerTarget(name="main", urls=["https://alertmanager.example"])
NAMES = (
    *("[pay](//evil.example)", "![x](//evil.example/x.png)", "[a]: //evil.example", "[^1]", "www.evil.example"),
    *(
        "WWW.evil.example",
        "evil.example",
        "a.evil.com-3",
        "evil。example",
        "mailto:me@evil.example",
        "https://evil.example",
    ),
    *("//evil.example", "*bold*", "**bold**", "_italic_", "__bold__", "a_b_", "~gone~", "~~gone~~", "`code`", "```"),
    *(
        "<!channel>",
        "<@U1>",
        "<https://evil.example|pay>",
        "<b>",
        "&lt;b&gt;",
        "@here",
        ":skull:",
        ":+1:",
        "a:-1:",
        "tel:+4930",
        "||spoiler||",
        "$x$",
    ),
    *(
        "# heading",
        "- item",
        "+ item",
        "1. item",
        "12. item",
        "> quote",
        "    code",
        "---",
        "===",
        "a\n===",
        "a\n\n- b",
    ),
    *("\\[pay](//evil.example)", "\\", "a|b", "x^2^", "_" * 300 + "x", "a" * 180 + "_bold_" * 9, "*" * 32_767),
    *("javascript:alert(1)", "pay.भारत", "evil.ভারত", "evil.ලංකා", "evil\uff0eไทย"),
)
# What a chat makes of text; in text without an escape each of these would be found.
SLACK = re.compile(
    r"<[^>]*>|&\w+;|(?<!\w)[*~`][^*~`]+[*~`](?!\w)|(?<!\w)_[^_]+_(?!\w)|:[a-z0-9_+-]+:|@(here|channel|everyone)"
    r"|\w+:\+\d|\w+://|www\.|[\w-]+\.[a-z]{2,}(?![a-z])|[.\uff0e][^\x00-\x7f]{2}",
    re.IGNORECASE,
)
TIME = re.compile(r" \d\d:\d\d:\d\d UTC")  # of ours
PLAIN = re.compile(r"</?p>|&quot;|\n")
OWN = {"runbook_url", "command"}  # a link of ours, and what has to be in a code block


def markup(text: str) -> str:
    """The tags in the text as Markdown shows it, with tables and strikethrough."""
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    return "".join(re.findall(r"<[^>]*>", PLAIN.sub("", rendered)))


def annotations(event: IncidentEvent) -> dict[str, str]:
    found = alert_of(event, TARGET, event.time_ms).annotations
    return {name: text for name, text in found.items() if name not in OWN}


def named(name: str) -> list[IncidentEvent]:
    """Events with this name in every place that a client chooses."""
    groups = (AffectedGroup(group_id=name, state=GroupState.STOPPED, committed_offset=Offset(1), hidden_lag=2),)
    command = f"txnwatch abort --transactional-id {name!r}"
    event = replace(
        an_event(transactional_id=name, suggested_command=command),
        consumer_groups=groups,
        waiting_groups=(WaitingGroup(group_id=name), WaitingGroup(group_id=name)),
    )
    as_topic = [replace(event, topic=name)] if is_topic_name(name) else []
    return [event, replace(event, topic=None, partition=None, topic_id=None), *as_topic]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
def test_a_name_is_only_text_in_every_annotation(name: str) -> None:
    for event in named(name):
        found = annotations(event)
        assert set(found) >= {"summary", "description", "transactional_id"}
        for text in (*found.values(), "\n".join(found.values()), " ".join(found.values())):
            assert not markup(text), text
            assert SLACK.search(TIME.sub("", text)) is None, text
            assert text.isprintable() or "\n" in text


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
def test_a_name_is_only_text_in_a_chat(name: str) -> None:
    events = [replace(event, suggested_command=None) for event in named(name)]
    events = [replace(event, incident_id=f"{number:032x}") for number, event in enumerate(events)]
    for found in (events[:1], events):
        lines = [line for line in text_of(found, None).splitlines() if not line.startswith("Runbook: ")]
        text = "\n".join(lines)
        assert not markup(text), text
        assert SLACK.search(TIME.sub("", text)) is None, text


def test_the_same_names_without_escapes_are_found() -> None:
    found = [name for name in NAMES if markup(name) or SLACK.search(name)]
    assert len(found) > len(NAMES) // 2
    assert {"*bold*", "www.evil.example", "![x](//evil.example/x.png)", "[pay](//evil.example)", "<@U1>"} <= set(found)


@given(st.text(alphabet="*_~`[]()<>!#|:.-+=/@& \\a1w", max_size=40), st.text(alphabet="*_~`[]()<>a ", max_size=20))
def test_no_two_texts_make_markup_together(first: str, second: str) -> None:
    together = f"{harmless(first)} {harmless(second)}"
    assert not markup(f"x {together}")
    assert not markup(harmless(first))


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
def test_a_command_is_only_text_in_a_code_block(name: str) -> None:
    for event in named(name):
        command = alert_of(event, TARGET, event.time_ms).annotations["command"]
        assert command.startswith("`txnwatch status`") or markup(f"```\n{command}\n```") == "<pre><code></code></pre>"
        assert command.startswith("`txnwatch status`") or not set(command) & set("<>`*[]~")


def test_a_long_command_or_name_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    class Recorder:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def __getattr__(self, how: str) -> Any:
            def search(*given: Any) -> Any:
                searched.append(len(given[-1]))
                return getattr(self._pattern, how)(*given)

            return search

    patterns = {name: found for name, found in vars(message).items() if isinstance(found, re.Pattern)}
    for name, pattern in patterns.items():
        monkeypatch.setattr(message, name, Recorder(pattern))
    event, *_ = named("_" * 32_766 + "a")
    assert alert_of(event, TARGET, event.time_ms).annotations["command"].startswith("`txnwatch status`")
    other = replace(event, suggested_command="txnwatch abort --topic orders --partition 3 --start-offset 99")
    assert alert_of(other, TARGET, event.time_ms).annotations["command"] == other.suggested_command
    assert 0 < max(searched) <= LONGEST_COMMAND


def test_a_topic_is_a_label_without_markup() -> None:
    for name, label in (
        ("orders.created_v2", "orders.created_v2"),
        ("__consumer_offsets", "__consumer_offsets"),
        ("www.evil.example", "www\\x2eevil.example"),
        ("_bold_", "_bold\\x5f"),
    ):
        assert alert_of(replace(an_event(), topic=name), TARGET, an_event().time_ms).labels["topic"] == label


def test_usual_names_stay_readable() -> None:
    for name in ("orders-3", "checkout-eu-1_7", "__consumer_offsets-12", "orders.v1", "10.0.0.1", "a=b, c (d) 'e'!"):
        assert harmless(name) == name
    assert harmless("orders.created") == "orders\\x2ecreated"
