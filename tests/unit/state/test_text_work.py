"""What foreign text costs: it is cut before it is searched, and a pattern needs steps in proportion to its length."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.regex_steps import CountingPattern
from txnwatch import http_client
from txnwatch.push import alertmanager, push_file, sender, targets, webhook
from txnwatch.state import text as shown
from txnwatch.state.text import CUT_MARK, HIDDEN, LONGEST_MESSAGE, LONGEST_NAME, NAMES_TO_HIDE, cut, quoted, redacted

SECRET = "kanarienvogel"
PUSH = (alertmanager, http_client, push_file, sender, targets, webhook)
PATTERNS = {
    name: value for module in (shown, *PUSH) for name, value in vars(module).items() if isinstance(value, re.Pattern)
}
# Each is repeated: what one attempt of a pattern reads, the next one may read again.
HOSTILE = (
    *("a", "token", "token.", "secret-", "token =", 'token="', "token='\\", "token    ", "Basic ", "Basic\t", "a://"),
    *("a,", "a://b@", ",a", "a:1,", "\\", "'", '"', "=", "==", " ", ".", "ba", "://", "a.b:1", "[", "@", "?a@"),
    *("_", "_a", "a_", "*", ".a", "。", ":", "www."),
)
SIZE = 120


def steps(pattern: re.Pattern[str], text: str) -> int:
    counting = CountingPattern(pattern)
    counting.spans(text)
    return counting.steps


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_needs_twice_the_steps_for_twice_the_text(name: str) -> None:
    for part in HOSTILE:
        for end in ("", "=", "@h", "a"):
            once, twice = (part * (size // len(part)) + end for size in (SIZE, 2 * SIZE))
            before = steps(PATTERNS[name], once)
            assert steps(PATTERNS[name], twice) < 2.3 * before + 100, (part, end)
            assert before < 100 * SIZE, (part, end)


def test_a_pattern_that_gives_characters_back_is_found() -> None:
    backtracking = re.compile(rf"(?<![\w.-])[\w.-]*(?:{NAMES_TO_HIDE})[\w.-]*\s*=")
    anywhere = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+")
    for pattern, part in ((backtracking, "token"), (anywhere, "a")):
        once, twice = (part * (size // len(part)) for size in (SIZE, 2 * SIZE))
        assert steps(pattern, twice) > 3.5 * steps(pattern, once)


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=60)
@given(text=st.text(alphabet="ab1:/@=\"'\\ .,-_*tokenBasic", max_size=30))
def test_the_steps_are_those_of_the_same_pattern(name: str, text: str) -> None:
    pattern = PATTERNS[name]
    found = [(start, end) for start, end in CountingPattern(pattern).spans(text) if start < end]
    assert found == [one.span() for one in pattern.finditer(text) if one.group()]


def test_what_is_searched_is_cut_first(monkeypatch: pytest.MonkeyPatch) -> None:
    given_to: list[int] = []

    class Recorder:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def sub(self, *given: object) -> object:
            given_to.append(len(str(given[-1])))
            return self._pattern.sub(*given)  # type: ignore[call-overload]

    for name in ("_URL", "_ASSIGNED", "_AUTHORIZATION", "_BEGUN_AUTHORIZATION"):
        monkeypatch.setattr(shown, name, Recorder(PATTERNS[name]))
    assert redacted("x" * 1_000_000) == "x" * LONGEST_MESSAGE + CUT_MARK
    assert given_to == [LONGEST_MESSAGE] * 4
    assert redacted("x" * LONGEST_MESSAGE) == "x" * LONGEST_MESSAGE


FORMS = (
    *("redis://user:{}@host:1/0", "https://u:{}@h", "https://host/?token={}", "redis://:{}@h,redis://:{}@i"),
    *("sasl.password={} x", 'sasl.password="{}" x', "sasl.password='{}' x", "{{'sasl.password': '{}'}}"),
    *('{{"basic.auth.user.info": "u:{}"}}', "Authorization: Basic {}==", "Bearer {}"),
)


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_never_shows_a_part_of_a_secret(form: str) -> None:
    """The cut moves over the whole secret and over what shows that it is one."""
    text = form.format(SECRET, SECRET)
    for before in range(LONGEST_MESSAGE - len(text) - 1, LONGEST_MESSAGE + 1):
        found = redacted("x" * (before - 1) + " " + text + " " * 9 + "y" * 40)
        assert SECRET[:4] not in found, before
        assert found.endswith(CUT_MARK)


def test_a_value_without_its_second_quotation_mark_is_hidden_to_the_end() -> None:
    assert redacted(f'refused: password="{SECRET} and \\" more') == f"refused: password={HIDDEN}"


def test_a_name_keeps_its_beginning_and_its_end() -> None:
    assert cut("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    name = "orders-" + "x" * 32_750 + "-instance-17"
    assert len(cut(name)) == LONGEST_NAME
    assert cut(name).startswith("orders-xxx")
    assert cut(name).endswith(f"xxxx{CUT_MARK}xxxx-instance-17")
    assert quoted("a'\n") == '"a\'\\n"'
    assert len(quoted(name)) == LONGEST_NAME + 2
