"""What `explain` says about a target that is the name of an error, or a line with one.

The words and what they mean are in error_words.py, and the forms of lines in decode_texts.py. Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from txnwatch.cli.decode_texts import recognise
from txnwatch.cli.error_words import command_of, means_text, word_in
from txnwatch.cli.explanation import Explanation
from txnwatch.state.telling.commands import Origin
from txnwatch.state.text import cut, quoted

ERROR_WORD: Final = "error_word"
_MOST_ROWS = 5


NOT_FOUND: Final = "no topic, consumer group or transactional id was found under this name"
NOT_ASKED: Final = "no cluster was asked whether a topic, consumer group or transactional id has this name"


def of_word(origin: Origin, text: str, nothing: str = NOT_FOUND) -> Explanation | None:
    """Explains a target that has an error; None if it has none. `nothing` says that it is no name in the cluster."""
    if len(text.split()) > 1 and (recognised := recognise(text, origin)) is not None and recognised.rows:
        first = recognised.rows[0]
        head = f"{cut(text)}: {recognised.what}; {nothing}."
        said = tuple(row.what for row in recognised.rows[:_MOST_ROWS])
        return Explanation(text, ERROR_WORD, text=(head, *said), next=first.next)
    row = word_in(text)
    if row is None:
        return None
    head = f"{cut(text)}: an error or a state of a client; {nothing}."
    return Explanation(text, ERROR_WORD, text=(head, means_text(row)), next=command_of(origin, row))


def with_word(explained: Explanation, name: str) -> Explanation:
    """The answer about an id, a group or a topic whose name is also that of an error."""
    row = word_in(name)
    if row is None or name not in row.names:  # an application may be called restoring
        return explained
    return replace(explained, text=(*explained.text, f"{quoted(name)} is also a name of an error: {means_text(row)}"))
