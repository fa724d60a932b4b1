"""Changes one value in a JSON document. A change of single bytes rarely gives JSON again."""

from __future__ import annotations

import json
import random
from typing import Any

_VALUES: tuple[str, ...] = (
    *("null", "true", "0", "-1", "1.5", "NaN", "Infinity", "1e400", "-1e400", "9223372036854775808", "1" + "0" * 400),
    *('""', '"a"', '"\\ud800"', '"\\u0000"', '"\\u202e\\u001b[2J"', '"orders-0"', '"orders"', '"-1"', '"9e99"'),
    *("[]", "[[]]", "[null]", "[1, 2]", "{}", '{"": null}', '{"a": {"b": []}}', "[" * 1_200, "[" * 60 + "]" * 60),
)


def changed(data: bytes, seed: int) -> bytes | None:
    """The document with one value replaced, removed, copied or put elsewhere; None if the bytes are no JSON."""
    choose = random.Random(seed)
    head, _, last = data.rpartition(b"\n")
    try:
        document: Any = json.loads(last)
    except (ValueError, RecursionError):
        return None
    places = _places(document)
    mark = f"mark-{choose.getrandbits(64)}"
    if not places:
        text = json.dumps(mark)
    else:
        container, key = choose.choice(places)
        act = choose.randrange(4)
        if act == 0:
            del container[key]
        elif act == 1:
            other, at = choose.choice(places)
            container[key] = json.loads(json.dumps(other[at]))
        else:
            container[key] = mark
        text = json.dumps(document)
    text = text.replace(json.dumps(mark), choose.choice(_VALUES))
    return (head + b"\n" if head else b"") + text.encode()


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Each value inside a document, by its container and key."""
    found: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        container = left.pop()
        if isinstance(container, dict | list):
            pairs = container.items() if isinstance(container, dict) else enumerate(container)
            found += [(container, key) for key, _ in pairs]
            left += container.values() if isinstance(container, dict) else container
    return found
