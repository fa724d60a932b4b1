"""Counts the steps of a regular expression: how often a character or a place of the text is compared with the pattern.

Python's own matcher counts nothing, and its time depends on the machine. So this one follows the parsed pattern, with
the same order of attempts and without the shortcuts of the original: it counts more steps, not fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import _constants as code
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_CATEGORIES = {
    code.CATEGORY_DIGIT: str.isdecimal,
    code.CATEGORY_SPACE: str.isspace,
    code.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
    code.CATEGORY_NOT_WORD: lambda one: not one.isalnum() and one != "_",
}
_ONE = (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN)


class CountingPattern:
    """A pattern that counts its own steps.

    Attributes:
        steps: how many there were.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._nodes = list(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
        self._is_case_ignored = bool(pattern.flags & re.IGNORECASE)
        self._is_dot_all = bool(pattern.flags & re.DOTALL)
        self.steps = 0

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The places that `sub` would replace."""
        found, at = [], 0
        while at <= len(text):
            end = next(self._all(self._nodes, text, at), None)
            if end is None:
                at += 1
            else:
                found.append((at, end))
                at = max(end, at + 1)
        return found

    def _all(self, nodes: Sequence[Any], text: str, at: int, first: int = 0) -> Iterator[int]:
        if first == len(nodes):
            yield at
            return
        for end in self._each(*nodes[first], text, at):
            yield from self._all(nodes, text, end, first + 1)

    def _each(self, op: Any, value: Any, text: str, at: int) -> Iterator[int]:
        self.steps += 1
        if op in _ONE:
            if at < len(text) and self._fits(op, value, text[at]):
                yield at + 1
        elif op is code.AT:
            if self._is_at(value, text, at):
                yield at
        elif op in {code.SUBPATTERN, code.BRANCH}:
            for branch in value[1] if op is code.BRANCH else value[-1:]:
                yield from self._all(list(branch), text, at)
        elif op in {code.ASSERT, code.ASSERT_NOT}:
            if self._is_beside(*value, text, at) is (op is code.ASSERT):
                yield at
        else:
            assert op in {code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT}, op
            yield from self._repeated(op, *value, text, at)

    def _repeated(self, op: Any, least: int, most: int, part: Any, text: str, at: int) -> Iterator[int]:
        ends, nodes = [at], list(part)
        if op is code.MIN_REPEAT:
            while True:
                if len(ends) > least:
                    yield ends[-1]
                end = next(self._all(nodes, text, ends[-1]), None) if len(ends) <= most else None
                if end is None:
                    return
                ends.append(end)
        # A part of a greedy repetition has one way to fit in the patterns that are counted here.
        while len(ends) <= most:
            end = next(self._all(nodes, text, ends[-1]), None)
            if end is None or end == ends[-1]:
                break
            ends.append(end)
        kept = ends[least:] if op is code.MAX_REPEAT else ends[least:][-1:]
        for end in reversed(kept):
            self.steps += 1
            yield end

    def _is_beside(self, direction: int, part: Any, text: str, at: int) -> bool:
        nodes = list(part)
        begin = at if direction > 0 else at - part.getwidth()[0]
        return begin >= 0 and next(self._all(nodes, text, begin), None) is not None

    def _is_at(self, where: Any, text: str, at: int) -> bool:
        if where in {code.AT_END_STRING, code.AT_END}:
            return at == len(text)
        if where in {code.AT_BEGINNING, code.AT_BEGINNING_STRING}:
            return at == 0
        assert where is code.AT_BOUNDARY, where
        is_word = _CATEGORIES[code.CATEGORY_WORD]
        before, after = at > 0 and is_word(text[at - 1]), at < len(text) and is_word(text[at])
        return bool(before) is not bool(after)

    def _fits(self, op: Any, value: Any, one: str) -> bool:
        if op is code.ANY:
            return self._is_dot_all or one != "\n"
        if op is code.IN:
            is_negated = value[0][0] is code.NEGATE
            return is_negated is not any(self._is_in(*part, one) for part in value[is_negated:])
        return (op is code.LITERAL) is (self._folded(chr(value)) == self._folded(one))

    def _is_in(self, op: Any, value: Any, one: str) -> bool:
        if op is code.CATEGORY:
            return bool(_CATEGORIES[value](one))
        low, high = value if op is code.RANGE else (value, value)
        both = {one, one.lower(), one.upper()} if self._is_case_ignored else {one}
        return any(low <= ord(form) <= high for form in both if len(form) == 1)

    def _folded(self, one: str) -> str:
        return one.lower() if self._is_case_ignored else one
