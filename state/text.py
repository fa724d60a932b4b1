"""Text for people and programs: no secrets, foreign text cut and escaped, short lists, no repetition. Pure: no I/O."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

# Cuts text of others for people. A transactional id, a client id and a group id have up to 32,767 characters, and the
# error of a broker or a library has any number. Pure: no I/O, no clock.
#
# The fields of an event are for programs, and stay whole.

LONGEST_NAME: Final = 256  # a topic has at most 249 characters
CUT_MARK: Final = "\u2026"
_KEPT_END = 16  # the number of an instance is often at the end of its id


def cut(name: str, longest: int = LONGEST_NAME) -> str:
    """The name, or its beginning and its end with a mark between them."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - _KEPT_END - 1]}{CUT_MARK}{name[-_KEPT_END:]}"


def quoted(name: str) -> str:
    """The name in a sentence: cut, and in quotation marks."""
    return repr(cut(name))


# Removes secrets from text that is shown: URLs with a user or a query, and values of settings that hold a secret.
#
# Errors of libraries pass here, and so every line of the log, which may have one. The line of an incident does not: its
# names are no secrets. Pure: no I/O, no clock.
#
# Law: if a text can be read in two ways, more of it is hidden. A password may contain `@`, `?`, `#` and `/`. A long
# text is cut before it is searched, and a secret at the cut is hidden to the end. The work grows with the length of the
# text alone: a pattern begins once for a run of characters, and gives none of them back.

HIDDEN: Final = "***"
REDIS_URL_RULE: Final = "redis://[[user]:password@]host:port/db"
REGISTRY_URL_RULE: Final = "http://[user:password@]host:port"
_RULES: Final = frozenset({REDIS_URL_RULE, REGISTRY_URL_RULE})  # shown in errors and in the help, as they are
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?(.*)", re.DOTALL)
# A port that is no number is shown only before a path: in redis://user:word the word is a password.
# Sentinel and Redis Cluster have several hosts.
_PLACE: Final = re.compile(r"([\w.~-]+|(?=/|$)|\[[\w:.%]+\])(:\d{0,5}(,[\w.~-]+:\d{1,5})*|:\w*(?=/))?(/[^@?#]*)?")
_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z0-9+.-]*+://)[^\s'\"<>]++")
_NEXT_URL: Final = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]*://)")
# What the name of a setting with a secret contains, as a regular expression of Python and of Java.
NAMES_TO_HIDE: Final = (
    r"passw(?:or)?d|passphrase|secret|credential|token|jaas\.config|user\.info|api[._-]?key|access[._-]?key"
    r"|ssl[._]keystore[._]key|ssl[._]key[._]pem"
    # of the clients of object stores
    r"|(?:account|private|encryption)[._]key|azure[._]sas"
)
_SENSITIVE: Final = rf"(?=[\w.-]*?(?:{NAMES_TO_HIDE}))[\w.-]++"
_ASSIGNED: Final = re.compile(
    # name=value, and 'name': 'value' of JSON or a dict; "name: ..." is the form of our own errors. A value without its
    # second quotation mark goes to the end.
    rf"""(?P<name>(?<![\w.-]){_SENSITIVE})(?P<sign>\s*+=\s*+(?!["']?\.\.\.)|["']\s*+:\s*+(?=["']))"""
    r"""(?:"(?:[^"\\]|\\.?)*+(?:"|\Z)|'(?:[^'\\]|\\.?)*+(?:'|\Z)|[^\s"',;&}\])]++)""",
    re.IGNORECASE | re.DOTALL,
)
_AUTHORIZATION: Final = re.compile(r"\b(Basic|Bearer)\s++[A-Za-z0-9+/._~-]{8,}+=*+")
_BEGUN_AUTHORIZATION: Final = re.compile(r"\b(Basic|Bearer)\s++[A-Za-z0-9+/._~-]*+\Z")
LONGEST_MESSAGE: Final = 8_192


def shown_url(url: str) -> str:
    """The URL for messages: user, password and the query are hidden; several comma-separated URLs are possible."""
    return ",".join(_shown(part) for part in _NEXT_URL.split(url))


def shown_place(url: str) -> str:
    """The host, the port and the path of a URL, without the scheme: for names and labels."""
    return shown_url(url).rpartition("://")[2].removeprefix(f"{HIDDEN}@").removesuffix(f"?{HIDDEN}")


def without_credentials(url: str) -> str:
    """The URL without user, password and query, so that a command with it still works for a user who may use it."""
    return ",".join(
        _shown(part).replace(f"{HIDDEN}@", "", 1).removesuffix(f"?{HIDDEN}") for part in _NEXT_URL.split(url)
    )


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting with this name is a secret."""
    return re.fullmatch(_SENSITIVE, name, re.IGNORECASE) is not None


def redacted(text: str) -> str:
    """Free text, such as an error of a library, cut and without the secrets that its form shows."""
    is_cut, text = len(text) > LONGEST_MESSAGE, text[:LONGEST_MESSAGE]
    end = len(text) if is_cut else None
    text = _URL.sub(lambda match: f"{match['scheme']}{HIDDEN}" if match.end() == end else _shown_token(match[0]), text)
    text = _ASSIGNED.sub(lambda match: f"{match['name']}{match['sign']}{HIDDEN}", text)
    text = _AUTHORIZATION.sub(lambda match: f"{match[1]} {HIDDEN}", text)
    return f"{_BEGUN_AUTHORIZATION.sub('', text)}{CUT_MARK}" if is_cut else text


def _shown_token(token: str) -> str:
    hides = ("@" in token or "?" in token) and token.rstrip(",;.)") not in _RULES
    return shown_url(token) if hides else token


def _shown(url: str) -> str:
    scheme, rest = _split(url)
    before, mark, after = _cut(rest)
    if "@" in after:  # a query with an @, or a password with a ? or a #
        return f"{scheme}{HIDDEN}"
    _, at, place = before.rpartition("@")
    if _PLACE.fullmatch(place) is None:  # for example redis://:password, where the host is missing
        place = HIDDEN
    return f"{scheme}{f'{HIDDEN}@' if at else ''}{place}{f'?{HIDDEN}' if mark else ''}"


def _split(url: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(url)
    assert match is not None
    return match[1] or "", match[2]


def _cut(rest: str) -> tuple[str, str, str]:
    match = re.search(r"[?#]", rest)
    return (rest, "", "") if match is None else (rest[: match.start()], match[0], rest[match.end() :])


# Escapes foreign text for its destination: a terminal, a log line, JSON, a shell. Pure: no I/O, no clock.
#
# Transactional ids, client ids, group ids and error messages can hold any character. A control character moves a
# terminal's cursor, a newline starts a second log line, and a bidi override changes the order in which a text is shown.
# So every character that Unicode does not class as printable is shown as the escape that Python and most languages have
# for it. Metric labels need no rule here: they are from closed sets, or the Prometheus client escapes them.

_BARE: Final = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
# zsh replaces =name by the path of a command, at the beginning and with MAGIC_EQUAL_SUBST behind = and :; fish replaces
# %self by its process id.
_EXPANDED: Final = re.compile(r"^%|(^|[=:])=")
_OUTSIDE: Final = re.compile(r"(['\\])")


def printable(text: str) -> str:
    """The text with an escape, such as x1b after a backslash, for every character that is not printable."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def shell_line(arguments: Iterable[str]) -> str:
    """The arguments as one line that a shell splits into the same arguments, and that can be shown and pasted."""
    return " ".join(_shell_word(argument) for argument in arguments)


def _shell_word(argument: str) -> str:
    """The argument for bash, zsh, ksh and, if it can be shown as it is, for every sh and fish."""
    if not argument.isprintable():
        # This form can be shown: each byte that is not printable ASCII is an escape.
        encoded = argument.encode(errors="surrogatepass")
        return "$'" + "".join(_shell_byte(byte) for byte in encoded) + "'"
    if _BARE.fullmatch(argument) and not _EXPANDED.search(argument):
        return argument
    # A quotation mark is none in quotation marks, and fish also reads a backslash there: both are escaped outside.
    parts = (part for part in _OUTSIDE.split(argument) if part)
    return "".join(f"\\{part}" if _OUTSIDE.fullmatch(part) else f"'{part}'" for part in parts) or "''"


def _shell_byte(byte: int) -> str:
    if chr(byte) in "'\\":
        return f"\\{chr(byte)}"
    is_plain = 0x20 <= byte < 0x7F and chr(byte) != "!"  # the history of an interactive shell
    return chr(byte) if is_plain else f"\\x{byte:02x}"


def _escape(sign: str) -> str:
    escaped = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(sign)
    if escaped is not None:
        return escaped
    code = ord(sign)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# Command lines for an administrator, in messages and in `txnwatch doctor`: the one that grants a right, the one that
# raises a feature. Pure: no I/O, no clock.
#
# The user of txnwatch may not alter ACLs or features. So a line has a placeholder for the properties file of an
# administrator, and never the file of txnwatch.

ADMIN_CONFIG: Final = "ADMIN.properties"


@dataclass(frozen=True, slots=True)
class Grantee:
    """The user who needs a right, and where it is granted.

    Attributes:
        principal: the name of the user in Kafka.
        is_configured: whether the connection needs a client properties file.
    """

    bootstrap_server: str
    principal: str
    is_configured: bool = False

    def line(self, operation: str, *resource: str) -> str:
        """The line of kafka-acls.sh that grants an operation on a resource, given as flags of kafka-acls.sh."""
        grant = ("--add", "--allow-principal", self.principal, "--operation", operation, *resource)
        return self.admin_line("kafka-acls.sh", *grant)

    def admin_line(self, tool: str, *arguments: str) -> str:
        """The line of a tool of Kafka that an administrator runs."""
        config = ("--command-config", ADMIN_CONFIG) if self.is_configured else ()
        return shell_line([tool, "--bootstrap-server", self.bootstrap_server, *config, *arguments])


# Long lists on one line: the first few names, or one line per reason. Pure: no I/O, no clock.

_Why = TypeVar("_Why", bound=Hashable)


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun: `1 partition`, `2,000 partitions`; `many` if the plural is not formed with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def some(names: Sequence[object], most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def some_names(names: Sequence[str], most: int) -> str:
    """The same for names of others: each is cut."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(cut, names[:most])) + more


def grouped(pairs: Iterable[tuple[str, _Why]]) -> dict[_Why, list[str]]:
    """The names of the pairs (what, why) by their reason, in order of first appearance."""
    reasons: dict[_Why, list[str]] = {}
    for what, why in pairs:
        reasons.setdefault(why, []).append(what)
    return reasons


# JSON that another program may have written: one error for everything that is wrong with it.


def read_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """The value of a JSON document.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number that is not finite.
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("expected JSON, found values that are nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {text}")
    return number


# Which text can be the name of a host, a name that an operator gives (a team, a target of the push), and an address of
# the web.

GIVEN_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
CLUSTER_NAME_RULE: Final = "a-z, A-Z, 0-9, '.', '_' and '-', at most 63 characters, the first a letter or a digit"
WEB_ADDRESS: Final = re.compile(r"https?://[!-~]{1,1000}")


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


def protocol_doubt(protocol: str) -> str:
    """A broker closes a connection of the wrong protocol without an error, a SASL listener after ApiVersions."""
    return f" (is security.protocol={protocol} right for this listener?)"


# Durations, for a table and for a sentence, and times for a sentence.

_LAST_DATE_MS: Final = 253_402_300_799_999  # the end of the year 9999


def two_units(seconds: int, *, minute: str = "m", gap: str = "") -> str:
    """A duration of a minute or more in its two largest units; `minute` is the name of that unit."""
    minutes, seconds = divmod(seconds, 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes}{gap}{minute}{gap}{seconds:02d}{gap}s"
    return f"{hours}{gap}h{gap}{rest:02d}{gap}{minute}" if hours < 48 else f"{hours // 24}{gap}d{gap}{hours % 24}{gap}h"


def duration_text(milliseconds: int) -> str:
    """A duration in a sentence."""
    seconds = max(0, milliseconds) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{int(seconds)} s" if seconds < 60 else two_units(int(seconds), minute="min", gap=" ")


def utc_text(milliseconds: int) -> str:
    """A time in a sentence; one that is no date, which the clock of a client can have, stays a number."""
    if not 0 <= milliseconds <= _LAST_DATE_MS:
        return f"{milliseconds} ms"
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


# Says a change once, and its end once: a log with the same line in every micro-batch is not read.

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Said(Generic[K]):
    """What was said already: problems that have begun and are not over, each with what was said about it.

    Attributes:
        gone_after: a problem that does not come again for so long is forgotten, by the clock of `now`.
    """

    gone_after: float = math.inf
    _said: dict[K, tuple[object, float]] = field(default_factory=dict)

    @property
    def problems(self) -> frozenset[K]:
        """The problems that have begun and are not over."""
        return frozenset(self._said)

    def is_new(self, problem: K, what: object = None, now: float = 0.0) -> bool:
        """Whether the problem has to be said now: it has just begun, or what is said about it has changed."""
        before = self._said.get(problem)
        if before is None and self.gone_after < math.inf:
            self._said = {other: said for other, said in self._said.items() if now - said[1] < self.gone_after}
        self._said[problem] = what, now
        return before is None or before[0] != what

    def is_over(self, problem: K) -> bool:
        """Whether its end has to be said now: it had begun before this call."""
        is_over = problem in self._said
        self._said.pop(problem, None)
        return is_over

    def update(self, problems: Collection[K]) -> tuple[set[K], set[K]]:
        """The new ones of all problems that there are now, and those that are over."""
        over = {problem for problem in self.problems - set(problems) if self.is_over(problem)}
        return {problem for problem in problems if self.is_new(problem)}, over
