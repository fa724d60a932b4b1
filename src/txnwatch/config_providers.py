"""Values of settings that are kept elsewhere, in the form of Kafka's config providers.

`${env:NAME}` is an environment variable, `${file:/path}` the content of a file without blanks at both ends,
`${file:/path:key}` the value of a key in a Java properties file. Kafka's own providers have the first and the last form
(EnvVarConfigProvider, FileConfigProvider). A reference to another provider is kept as text, as Kafka does.

Law: no error shows a value that was read, and a value that was read is not searched for references. A reader of a file
shows the path in its errors, so a path is checked here before: if nothing exists there, it may be a key.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from urllib.parse import quote

import javaproperties

from txnwatch.state.model.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file):([^{}]*)\}")
_PASSWORD_FOLLOWS = re.compile(r"[^/?#]*@")
_PARAMETER_BEFORE = re.compile(r"://[^\s?]*[?]([^\s?]*&)?[\w.-]+=$")
_secret_variables: set[str] = set()


def has_reference(text: str) -> bool:
    """Whether a part of the text is kept elsewhere."""
    return _REFERENCE.search(text) is not None


def expanded(text: str, where: str, environ: Mapping[str, str] = os.environ, *, is_secret: bool = True) -> str:
    """The text with the value of every reference; in a URL, a user, a password or a parameter is URL-encoded.

    Args:
        text: the value of a setting.
        where: the setting, for errors.
        environ: the variables of `${env:NAME}`.
        is_secret: whether child processes must not inherit the variables; see `hidden_from_children`.

    Raises:
        ConfigError: a variable, a file or a key is missing or empty.
    """

    def value(found: re.Match[str]) -> str:
        read = _value(found[1], found[2], f"{where}: {found[0]}", environ)
        if is_secret and found[1] == "env":
            _secret_variables.add(found[2])
        return quote(read, safe="") if _is_encoded(text, found) else read

    return _REFERENCE.sub(value, text)


def check_paths(text: str, paths: Iterable[str], where: str, *, may_be_new: bool = False) -> None:
    """Checks the paths in a value that was read; a path without a reference is the business of its reader.

    Args:
        text: the value of a setting, with its references.
        paths: the paths in the value that was read.
        where: the setting, for errors.
        may_be_new: whether the path may be that of a new directory in one that exists, or a URI.

    Raises:
        ConfigError: nothing exists at a path; the message has the references.
    """
    references = ", ".join(found[0] for found in _REFERENCE.finditer(text))
    if not references or all(_exists(path) or (may_be_new and _may_be_new(path)) for path in paths):
        return
    what = "a directory, whose parent exists, or a URI" if may_be_new else "a file that exists"
    hint = " (${file:...} is the content of a file, not its path)" if "${file:" in references else ""
    raise ConfigError(f"{where}: expected the path of {what}, found none at {references}{hint}")


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long, or no path
        return False


def _may_be_new(path: str) -> bool:
    """A name in the current or in the root directory is no proof: a key may be one."""
    parent = Path(path).parent
    return "://" in path or (parent.is_absolute() and parent != Path(parent.anchor) and _exists(str(parent)))


@contextlib.contextmanager
def hidden_from_children(prefix: str, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Removes variables that may hold a secret from the environment that child processes of this block inherit.

    These are the variables with the prefix, and those that a secret was read from.
    """
    removed = {name: environ[name] for name in list(environ) if name.startswith(prefix) or name in _secret_variables}
    for name in removed:
        del environ[name]
    try:
        yield
    finally:
        environ.update(removed)


def _is_encoded(text: str, found: re.Match[str]) -> bool:
    """Whether the reference is in the user or the password of a URL, or is the value of a parameter in its query."""
    before = text[: found.start()]
    is_in_credentials = "://" in before and _PASSWORD_FOLLOWS.match(text, found.end()) is not None
    return is_in_credentials or _PARAMETER_BEFORE.search(before) is not None


def _value(provider: str, name: str, where: str, environ: Mapping[str, str]) -> str:
    if provider == "env":
        value = _variable(name, where, environ)
    else:
        path, has_key, key = name.rpartition(":")
        value = _of_properties(Path(path), key, where) if has_key else _whole(Path(name), where)
    if not value:
        raise ConfigError(f"{where}: expected a value, found an empty one")
    return value


def _variable(name: str, where: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise ConfigError(f"{where}: expected the environment variable {name}, found none")
    return environ[name]


def _whole(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise ConfigError(f"{where}: expected a file that can be read, found: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: expected a file in UTF-8, found another encoding") from None


def read_properties(path: Path, where: str) -> dict[str, str]:
    """The values of a Java properties file, as they are written there.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it has an invalid escape.
    """
    try:
        with path.open("rb") as file:
            return dict(javaproperties.load(file))
    except ValueError:  # its message has a part of the value
        raise ConfigError(f"{where}: expected a Java properties file, found an invalid escape") from None


def _of_properties(path: Path, key: str, where: str) -> str:
    try:
        properties = read_properties(path, where)
    except OSError as exc:
        raise ConfigError(f"{where}: expected a file that can be read, found: {exc.strerror}") from exc
    if key not in properties:
        raise ConfigError(f"{where}: expected the key {key} in {path}, found none")
    return properties[key]
