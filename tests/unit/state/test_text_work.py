"""What foreign text costs: it is cut before it is searched, and a pattern needs time in proportion to its length."""

from __future__ import annotations

import re
import time

import pytest

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
SIZE = 16_000  # a pattern that gives characters back needs its square: 0.2 s or more; the others need 4 ms at most
MOST_S = 0.05


def is_slow(pattern: re.Pattern[str], text: str) -> bool:
    """By CPU time; what else the machine does can make one measurement long, but not all of them."""

    def cpu_s() -> float:
        begun = time.process_time()
        pattern.sub("", text)
        return time.process_time() - begun

    return all(cpu_s() > MOST_S for _ in range(3))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_needs_no_square_of_the_length_of_a_text(name: str) -> None:
    texts = [part * (SIZE // len(part)) + end for part in HOSTILE for end in ("", "=", "@h", "a")]
    assert [text[:20] for text in texts if is_slow(PATTERNS[name], text)] == []


def test_a_pattern_that_gives_characters_back_is_found() -> None:
    backtracking = re.compile(rf"(?<![\w.-])[\w.-]*(?:{NAMES_TO_HIDE})[\w.-]*\s*=")
    anywhere = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+")
    assert is_slow(backtracking, "token" * (SIZE // 5))
    assert is_slow(anywhere, "a" * SIZE)


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
