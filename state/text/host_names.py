"""Which text can be the name of a host."""

from __future__ import annotations


def is_host_name(text: str) -> bool:
    """Whether a socket accepts the text as a host.

    A label that is empty or has more than 63 characters fails in Python before the name is looked up: with a
    UnicodeError, which is no OSError.
    """
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return bool(text) and "\0" not in text
