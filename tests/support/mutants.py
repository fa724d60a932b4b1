"""The product with one line of it wrong, to see whether a test would notice.

A mutant names the line by its text, so that it fails loudly when the line is gone. The module is run again from the
changed source under its own name; whoever uses it gets the changed class or function for as long as the test lasts.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import NamedTuple

import pytest

from txnwatch.state.detection import span_events
from txnwatch.state.detection import span_transitions as spans
from txnwatch.streaming.log import partition_fold as fold


class Mutant(NamedTuple):
    """One wrong line."""

    module: ModuleType
    right: str
    wrong: str


_OPENS = "if seen is None or seen.open_offset is None:"
_MINE = "if attributes & TRANSACTIONAL and first >= start:"
_SEEN = "find_open(encoded) or self._taken_up(encoded, first)"
_NOBODY = "if producer_id < 0:"
_MARKER = "        if self._keep_episodes and producer"
_CLOSED = "        producer.open_offset = None"
_ENDS = "marker.offset > prior.start_offset:"

MUTANTS: dict[str, Mutant] = {
    "only a newer epoch closes": Mutant(
        fold,
        _MARKER,
        "        if producer.open_offset is not None and marker.producer_epoch <= producer.epoch:\n"
        f"            return\n{_MARKER}",
    ),
    "an older epoch closes nothing": Mutant(
        fold, _MARKER, f"        if marker.producer_epoch < producer.epoch:\n            return\n{_MARKER}"
    ),
    "a newer epoch in data begins anew": Mutant(fold, _OPENS, f"{_OPENS[:-1]} or seen.epoch < epoch:"),
    "a marker is dropped": Mutant(fold, _CLOSED, "        pass"),
    "an abort does not close": Mutant(fold, _CLOSED, f"        if marker.commit:\n    {_CLOSED}"),
    "an emptied batch opens nothing": Mutant(fold, _MINE, f"{_MINE[:-1]} and header_at(buffer, at).record_count:"),
    "data outside of transactions opens": Mutant(fold, _MINE, _MINE.replace("attributes & TRANSACTIONAL and ", "")),
    "nobody opens": Mutant(fold, _NOBODY, "if producer_id < -1:"),
    "the last batch opens": Mutant(
        fold, _SEEN, "self._opened(producer_of(encoded)[0], first, producer_of(encoded)[1])"
    ),
    "the state waits for a newer epoch": Mutant(spans, _ENDS, f"{_ENDS[:-1]} and marker.producer_epoch > prior.epoch:"),
    "the state minds the epoch": Mutant(spans, _ENDS, f"{_ENDS[:-1]} and marker.producer_epoch >= prior.epoch:"),
    "the state never closes": Mutant(spans, "prior is None or closing is not None else", "prior is None else"),
    "a re-read does not show an earlier start": Mutant(
        spans, "min(prior.start_offset, fact.open_offset)", "prior.start_offset"
    ),
    "the highest epoch is the last": Mutant(
        spans, "fact.epoch if later else prior.epoch", "max(fact.epoch, prior.epoch)"
    ),
    "a cut takes nothing": Mutant(span_events, "span.start_offset >= notice.from_offset", "False"),
    "a cut keeps the epoch": Mutant(
        span_events, "replace(span, epoch=span.oldest_epoch, last_offset=start, ", "replace(span, "
    ),
}


def plant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the wrong line in place of the right one, for the fold and for the bucket."""
    module = mutant.module
    source = inspect.getsource(module)
    assert source.count(mutant.right) == 1, f"{module.__name__} has not once: {mutant.right}"
    changed = ModuleType(module.__name__)
    with monkeypatch.context() as patch:  # dataclasses look their module up by name while they are made
        patch.setitem(sys.modules, module.__name__, changed)
        exec(compile(source.replace(mutant.right, mutant.wrong), "a mutant", "exec"), changed.__dict__)
    if module is fold:
        monkeypatch.setattr(fold, "PartitionFold", changed.PartitionFold)
        return
    for user in [found for name, found in sys.modules.items() if name.startswith("txnwatch.state.detection.")]:
        for name, right in inspect.getmembers(user, inspect.isfunction):
            if right.__module__ == module.__name__:
                monkeypatch.setattr(user, name, getattr(changed, name))
