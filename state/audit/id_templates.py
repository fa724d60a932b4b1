"""The form of a transactional id: its variable parts are masked, so that the ids of one application are one finding.

Apart: the forms of owners/id_shapes.py are of frameworks; here any id has a form.
"""

from __future__ import annotations

import re
from typing import Final

_UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_HEX: Final = r"(?<![0-9a-zA-Z])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}(?![0-9a-zA-Z])"
_LONG: Final = r"[0-9]{10,20}"
_MASKED: Final = re.compile(f"(?P<uuid>{_UUID})|(?P<hex>{_HEX})|(?P<random>{_LONG})|(?P<n>[0-9]+)")
_RANDOM: Final = ("{uuid}", "{hex}", "{random}")
_LONGEST = 300  # a longer id is its own form: masking it takes too long


def template_of(transactional_id: str) -> str:
    """The id with its variable parts masked, for example `checkout-{n}`."""
    if len(transactional_id) > _LONGEST:
        return transactional_id
    return _MASKED.sub(lambda found: f"{{{found.lastgroup}}}", transactional_id)


def is_random(template: str) -> bool:
    """Whether a variable part is random, and not a small number."""
    return any(part in template for part in _RANDOM)
