"""Whatever is believed of a watcher can be shown: an error would end the page of all clusters."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from support.clusters_world import facts_of_world
from support.page_world import ORIGIN, OWNERS, a_busy_cluster
from txnwatch.page import details, finding
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.live_picture import encode
from txnwatch.page.picture import picture_of
from txnwatch.page.store import PageStore
from txnwatch.page.watcher_facts import WatcherFacts, decoded
from txnwatch.state.model.errors import BadFactsError
from txnwatch.state.model.values import ProducerId, TopicPartition

ODD = [
    *(None, 0, 1, -1, 2**31 - 1, 2**63 - 1, 253_402_300_799_999, True, False, 1.5),
    *("", "x", "\u202e<b>", "a" * 3_000, [], {}, "hanging", "late", "resolved", "updated", "abort", "0" * 32),
]
BASE = json.loads(encode(facts_of_world(a_busy_cluster(), "EU", "w")))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value."""
    if path:
        yield path
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, (*path, key))


PLACES = list(places(BASE))


def odd_facts(chance: random.Random) -> bytes:
    """The facts with one to three values that are left out, doubled or replaced."""
    found = copy.deepcopy(BASE)
    for _ in range(chance.choice([1, 1, 2, 3])):
        *above, last = chance.choice(PLACES)
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change has removed it
            parent = found
            for key in above:
                parent = parent[key]
            if isinstance(parent, list) and chance.random() < 0.3:
                parent.append(copy.deepcopy(parent[last]))
            elif isinstance(parent, list) and chance.random() < 0.3:
                del parent[last]
            else:
                parent[last] = chance.choice(ODD)
    return json.dumps(found).encode()


def show(facts: WatcherFacts) -> None:
    """Makes everything that the page can answer."""
    seen = facts.known(OWNERS)
    store = PageStore("", ORIGIN, facts.access, seen, facts.lived(seen.incidents or ()))
    known = Knowledge(store=store, seen=seen, now_ms=facts.now_ms, ends=seen.ends)
    encode(picture_of(known))
    encode([details.incident(known, one.incident_id) for one in seen.incidents or ()])
    encode([details.partitions(known), details.ended(known), details.oldest(known, 300)])
    encode([details.partition(known, TopicPartition("payments", 0)), details.producer(known, ProducerId(4021))])
    encode([details.transactional_id(known, "checkout-7"), finding.found(known, "checkout-7")])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_believed_can_be_shown(seed: int) -> None:
    chance, believed = random.Random(seed), 0
    for _ in range(100):
        with contextlib.suppress(BadFactsError):
            facts = decoded(odd_facts(chance))
            believed += 1
            show(facts)
    assert believed > 2, "odd and still believed"
