"""Whose turn it is: of more candidates than one batch confirms, those that have waited longest. Nobody starves."""

from __future__ import annotations

from collections.abc import Sequence

from txnwatch.state.emitted import SpanCandidate
from txnwatch.state.ids import TopicPartition

CANDIDATES_AT_A_TIME = 200


class Turns:
    """Remembers when each candidate of the last batch was tried last."""

    def __init__(self) -> None:
        self._tried: dict[tuple[TopicPartition, int], int] = {}
        self._tries = 0

    def next(self, candidates: Sequence[SpanCandidate]) -> list[SpanCandidate]:
        """As many as one batch confirms."""
        keys = {candidate: (candidate.partition, candidate.producer_id) for candidate in candidates}
        chosen = sorted(candidates, key=lambda candidate: self._tried.get(keys[candidate], 0))[:CANDIDATES_AT_A_TIME]
        self._tries += 1
        self._tried = {key: self._tried.get(key, 0) for key in keys.values()}
        self._tried.update({keys[candidate]: self._tries for candidate in chosen})
        return chosen
