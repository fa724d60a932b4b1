"""Text that a client has chosen stays text: markup, control characters, bidi marks, `..`, and 32,000 characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.browsers import a_tab
from support.page_world import HANG, PageWorld, a_calm_cluster, an_incident, an_open

HOSTILE = {
    "markup": "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    "a template": "${document.title='owned'}{{1+1}}",
    "a terminal": "\x1b]0;owned\x07\x1b[2J",
    "bidi": "\u202egnp.exe\u2066\u200f",
    "a path": "../../etc/passwd",
    "two points": "..",
    "long": "W" * 32_767,
    "a mention": "<!channel> & \"quotes\" 'single'",
}


# What a text could have made: the page itself has scripts of files, and the data of its first picture.
FOREIGN = "script:not([src]):not(#first), img, iframe, object"


def hostile(text: str) -> PageWorld:
    """A cluster in which an id, a group and, as far as Kafka allows it, a topic are hostile."""
    world = a_calm_cluster()
    topic = "a.very.long.topic.name." * 10
    groups = ({"group_id": text[:200], "state": "stopped", "committed_offset": 1, "hidden_lag": 5},)
    world.open.insert(0, an_open(4021, text, 252, ("payments", 0, 18_210_442), (topic, 3, 5), state="unowned"))
    world.tell(an_incident("hang", 252, consumer_groups=groups, **{**HANG, "transactional_id": text}))
    world.batch()
    return world


@pytest.mark.matrix
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_id_is_text(browser: Any, serve: Callable[[PageWorld], str], name: str) -> None:
    world = hostile(HOSTILE[name])
    url = serve(world)
    incident = world.incidents[0].incident_id
    for path in ("/", f"/incident/{incident}", "/partition/payments/0", "/producer/4021", "/open"):
        with a_tab(browser, url, path, width=360) as tab:
            tab.until("stands still")
            tab.page.wait_for_timeout(600)
            assert "owned" not in tab.page.title()
            assert tab.page.locator(FOREIGN).count() == 0
            assert not tab.is_too_wide, path
            assert tab.said == []
            text = tab.page.evaluate("document.body.innerText")
            assert all(one.isprintable() or one in "\n\t" for one in text), path


def test_a_link_to_a_hostile_id_leads_to_its_producer(browser: Any, serve: Callable[[PageWorld], str]) -> None:
    with a_tab(browser, serve(hostile(".."))) as tab:
        tab.until("stands still")
        tab.page.locator(".incidents h3 a.mono").first.click()
        tab.page.wait_for_url("**/producer/4021")
        tab.until("..", ".sentence p.mono")
