"""A process that writes transactions of many producers, in rounds of a second (fast_producers.py).

All transactions begin before the first round. In a round each producer that takes part either appends one more batch to
each of its partitions, or commits its transaction and begins the next one. At the end all transactions are committed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from support.fast_producers import FastProducers

ROUND_S, BEGUN_S, ENDED_S = 1.0, 300.0, 120.0
TIMEOUT_MS = 900_000  # of a transaction: longer than its user takes


@dataclass(frozen=True, slots=True)
class Load:
    """What is written.

    Attributes:
        places: the partitions of each producer.
        in_a_round: the number of producers that take part in a round; the next round has the next ones.
        commits: whether they commit and begin, instead of appending.
    """

    port: int
    topic: str
    places: tuple[tuple[int, ...], ...]
    in_a_round: int
    commits: bool
    value: bytes = b"x"


@contextmanager
def writing(load: Load) -> Iterator[Synchronized[int]]:
    """Writes while the context is open; yields how many times a producer has taken part in a round."""
    context = multiprocessing.get_context("spawn")
    written, has_begun, is_over = context.Value("q", 0), context.Event(), context.Event()
    process = context.Process(target=_write, args=(load, written, has_begun, is_over), daemon=True)
    process.start()
    deadline = time.monotonic() + BEGUN_S
    while not has_begun.wait(0.1):
        assert process.is_alive(), "the writer failed"
        assert time.monotonic() < deadline, "the transactions did not begin"
    try:
        yield written
    finally:
        is_over.set()
        process.join(ENDED_S)
    assert process.exitcode == 0, "the writer failed"


def _write(load: Load, written: Any, has_begun: Any, is_over: Any) -> None:
    everyone = range(len(load.places))
    with closing(FastProducers(load.port, load.topic, load.places, TIMEOUT_MS, load.value)) as producers:
        producers.begin(everyone)
        has_begun.set()
        for number in itertools.count():
            if is_over.is_set():
                break
            begin = time.monotonic()
            some = turn(number, load.in_a_round, len(load.places))
            if load.commits:
                producers.commit(some)
                producers.begin(some)
            else:
                producers.write(some)
            written.value += len(some)
            time.sleep(max(0.0, begin + ROUND_S - time.monotonic()))
        producers.commit(everyone)


def turn(number: int, in_a_round: int, count: int) -> list[int]:
    """The producers that take part in a round."""
    return [(number * in_a_round + step) % count for step in range(in_a_round)]
