"""Removes secrets from text that is shown: URLs with a user or a query, and values of settings that hold a secret.

Everything that leaves the process as text passes here: log lines, errors, labels of metrics, rows of `doctor` and
suggested commands. Pure: no I/O, no clock.

Law: if a text can be read in two ways, more of it is hidden. A password may contain `@`, `?`, `#` and `/`.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
REDIS_URL_RULE: Final = "redis://[[user]:password@]host:port/db"
REGISTRY_URL_RULE: Final = "http://[user:password@]host:port"
_RULES: Final = frozenset({REDIS_URL_RULE, REGISTRY_URL_RULE})  # shown in errors and in the help, as they are
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?(.*)", re.DOTALL)
# A port that is no number is shown only before a path: in redis://user:word the word is a password.
# Sentinel and Redis Cluster have several hosts.
_PLACE: Final = re.compile(r"([\w.~-]+|(?=/|$)|\[[\w:.%]+\])(:\d{0,5}(,[\w.~-]+:\d{1,5})*|:\w*(?=/))?(/[^@?#]*)?")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_NEXT_URL: Final = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]*://)")
# What the name of a setting with a secret contains, as a regular expression of Python and of Java.
NAMES_TO_HIDE: Final = (
    r"passw(?:or)?d|passphrase|secret|credential|token|jaas\.config|user\.info|api[._-]?key|access[._-]?key"
    r"|ssl[._]keystore[._]key|ssl[._]key[._]pem"
    # of the clients of object stores
    r"|(?:account|private|encryption)[._]key|azure[._]sas"
)
_SENSITIVE: Final = rf"[\w.-]*(?:{NAMES_TO_HIDE})[\w.-]*"
_ASSIGNED: Final = re.compile(
    # name=value, and 'name': 'value' of JSON or a dict; "name: ..." is the form of our own errors
    rf"""(?P<name>(?<![\w.-]){_SENSITIVE})(?P<sign>\s*=\s*(?!["']?\.\.\.)|["']\s*:\s*(?=["']))"""
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"',;&}\])]+)""",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(r"\b(Basic|Bearer)\s+[A-Za-z0-9+/._~-]{8,}=*")


def shown_url(url: str) -> str:
    """The URL for messages: user, password and the query are hidden; several comma-separated URLs are possible."""
    return ",".join(_shown(one) for one in _NEXT_URL.split(url))


def shown_place(url: str) -> str:
    """The host, the port and the path of a URL, without the scheme: for names and labels."""
    return shown_url(url).rpartition("://")[2].removeprefix(f"{HIDDEN}@").removesuffix(f"?{HIDDEN}")


def without_credentials(url: str) -> str:
    """The URL without user, password and query, so that a command with it still works for a user who may use it."""
    return ",".join(_shown(one).replace(f"{HIDDEN}@", "", 1).removesuffix(f"?{HIDDEN}") for one in _NEXT_URL.split(url))


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting with this name is a secret."""
    return re.fullmatch(_SENSITIVE, name, re.IGNORECASE) is not None


def redacted(text: str) -> str:
    """Free text, such as an error of a library, without the secrets that its form shows."""
    text = _URL.sub(lambda found: _shown_token(found[0]), text)
    text = _ASSIGNED.sub(lambda found: f"{found['name']}{found['sign']}{HIDDEN}", text)
    return _AUTHORIZATION.sub(lambda found: f"{found[1]} {HIDDEN}", text)


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
    found = _SCHEME.fullmatch(url)
    assert found is not None
    return found[1] or "", found[2]


def _cut(rest: str) -> tuple[str, str, str]:
    found = re.search(r"[?#]", rest)
    return (rest, "", "") if found is None else (rest[: found.start()], found[0], rest[found.end() :])
