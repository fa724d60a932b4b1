"""One browser for all tests of a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.browsers import a_browser
from support.page_world import PageWorld


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as found:
        yield found


@pytest.fixture
def serve() -> Iterator[Callable[[PageWorld], str]]:
    """Serves a page and makes a micro-batch each half second, as a watch does; returns the address."""
    with ExitStack() as stack:

        def begin(world: PageWorld) -> str:
            over = threading.Event()

            def beat() -> None:
                while not over.wait(0.5):
                    world.batch()

            thread = threading.Thread(target=beat)
            thread.start()
            stack.callback(thread.join)
            stack.callback(over.set)
            return stack.enter_context(world.served())

        yield begin
