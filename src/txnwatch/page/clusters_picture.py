"""The picture of several clusters side by side: one line for each, the worst first, and one sentence about all.

Law: the state of all is that of the worst, and unknown comes before clear. The sentence names the worst cluster and
each one that is not watched. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from txnwatch.page.picture import Picture
from txnwatch.page.truth import PageState
from txnwatch.page.words import Part, as_text, counted, evaluated, name, number
from txnwatch.state.model.values import DurationMs, TimestampMs

READ_WITHIN_MS: Final = DurationMs(5_000)  # several times the pause between two pictures
_NAMED: Final = 12
_WORST_FIRST: Final = (
    PageState.INCIDENT,
    PageState.UNKNOWN,
    PageState.PARTIAL,
    PageState.LIMITED,
    PageState.CLEAR,
)
_NOT_WATCHED: Final = frozenset({"a barrier was evaluated", "it was evaluated lately"})


class OneCluster(NamedTuple):
    """A cluster of the list.

    Attributes:
        key: its part of the address.
        name: how the operator calls it.
        cluster_id: None until its brokers have answered.
        status: the section of its own picture.
    """

    key: str
    name: str
    cluster_id: str | None
    status: Mapping[str, Any]

    @property
    def state(self) -> PageState:
        """Its state."""
        return PageState(self.status["state"])

    @property
    def is_unwatched(self) -> bool:
        """Whether everything was read, and no watcher has evaluated anything lately."""
        return self.state is PageState.UNKNOWN and self.status["why"] in _NOT_WATCHED


def _order(one: OneCluster) -> tuple[int, bool, int, str]:
    tones = one.status["tone"] != "critical"
    return _WORST_FIRST.index(one.state), tones, -one.status["open_incidents"], one.name


def clusters_picture(clusters: Iterable[OneCluster], now_ms: TimestampMs) -> Picture:
    """The whole picture."""
    ordered = sorted(clusters, key=_order)
    worst = ordered[0]
    headline = _headline(ordered)
    return {
        "status": {
            "state": worst.state,
            "why": worst.status["why"],
            "tone": worst.status["tone"],
            "headline": headline,
            "detail": [_detail(ordered)],
            "judged_ms": now_ms // 1000 * 1000,
            "judged_within_ms": READ_WITHIN_MS,
            "open_incidents": sum(one.status["open_incidents"] for one in ordered),
        },
        "clusters": {one.key: _row(one) for one in ordered},
        "order": {"clusters": [one.key for one in ordered]},
    }


def _row(one: OneCluster) -> dict[str, Any]:
    status = one.status
    return {
        "name": name(one.name),
        "cluster_id": name(one.cluster_id) if one.cluster_id is not None else None,
        "state": one.state,
        "tone": status["tone"],
        "text": _text(one),
        "incidents": status["open_incidents"] if one.state is not PageState.UNKNOWN else None,
        "judged_ms": status["judged_ms"],
        "is_late": one.state is PageState.UNKNOWN and status["judged_ms"] is not None,
    }


def _text(one: OneCluster) -> list[Part]:
    """What is to be said about a cluster on its line."""
    if one.state is PageState.CLEAR:
        watched = one.status["partitions"]
        return [f"All clear on {counted(watched['scanned'] + watched['census'], 'partition')}."]
    parts: list[Part] = list(one.status["headline"])
    return parts


def _headline(ordered: Sequence[OneCluster]) -> list[Part]:
    """The worst cluster, and each one that is not watched or not known; if there is none of them, that all is clear."""
    worst = ordered[0]
    unknown = [one for one in ordered if one.state is PageState.UNKNOWN]
    unwatched = [one for one in unknown if one.is_unwatched]
    sentences: list[Sequence[Part]] = []
    if worst.state is PageState.INCIDENT:
        sentences.append([f"{name(worst.name)}: {worst.status['headline'][0]}"])
    elif worst.state not in {PageState.UNKNOWN, PageState.CLEAR}:
        first, *rest = worst.status["headline"]
        sentences.append([f"{name(worst.name)}: {first}", *rest])
    if unwatched:
        sentences.append([f"{_names(unwatched)} not watched."])
    if others := [one for one in unknown if one not in unwatched]:
        sentences.append([f"{_names(others)} not known."])
    if not sentences:
        sentences.append(
            [f"All {number(len(ordered))} clusters are clear." if ordered[1:] else "The cluster is clear."]
        )
    return [part for i, sentence in enumerate(sentences) for part in ([" ", *sentence] if i else sentence)]


def _names(clusters: Sequence[OneCluster]) -> str:
    """The names, as the beginning of a sentence."""
    shown = [name(one.name) for one in clusters[:_NAMED]]
    if len(clusters) > _NAMED:
        shown.append(f"{len(clusters) - _NAMED} more")
    return f"{shown[0]} is" if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]} are"


def _detail(ordered: Sequence[OneCluster]) -> str:
    states = Counter(one.state for one in ordered)
    unknown = states[PageState.UNKNOWN] + states[PageState.PARTIAL] + states[PageState.LIMITED]
    counts = (
        (states[PageState.CLEAR], "clear"),
        (states[PageState.INCIDENT], "with incidents"),
        (unknown, "not fully known"),
    )
    return " · ".join(
        [counted(len(ordered), "cluster"), *(f"{number(count)} {what}" for count, what in counts if count)]
    )


def clusters_text(picture: Picture, now_ms: TimestampMs) -> str:
    """The picture as text, for curl."""
    status = picture["status"]
    lines = [as_text(status["headline"], now_ms), as_text(status["detail"], now_ms), ""]
    for key in picture["order"]["clusters"]:
        row = picture["clusters"][key]
        age = evaluated(row["judged_ms"], now_ms)
        lines.append(f"{row['state'].upper():8}  {row['name']}  {as_text(row['text'], now_ms)}  {age}  /c/{key}/")
    return "\n".join(lines) + "\n"
