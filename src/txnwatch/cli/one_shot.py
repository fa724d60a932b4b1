"""The common parts of all commands that query a cluster once: flags, connection, output, exit code."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from txnwatch.cli.output import CommandAnswer, write
from txnwatch.config import (
    EVENTS_TOPIC,
    THRESHOLDS,
    RunSettings,
    is_redis_url,
    is_registry_url,
)
from txnwatch.owners.owner_table import read_owners
from txnwatch.setting_sources import ENVIRONMENT_PREFIX, client_properties, expanded, has_reference, load_settings
from txnwatch.state.model.values import INT16, INT32, INT64, TOPIC_NAME_RULE, is_topic_name
from txnwatch.state.text import REDIS_URL_RULE, REGISTRY_URL_RULE, printable, shown_url

if TYPE_CHECKING:
    from txnwatch.streaming.client.cluster import Cluster
    from txnwatch.streaming.source.options import SourceOptions

# The types of flags: one function for each range of numbers in Kafka, and for text that Kafka accepts.
#
# Law: argparse calls these functions, so that an invalid value is a usage error before any request. Otherwise a number
# that does not fit Kafka's field fails in the encoder, and an empty name fails with an error of a broker.


def int64(text: str) -> int:
    """Any int64, for flags where a negative number has a meaning, as in Kafka's own tools."""
    return _number(text, -INT64 - 1, INT64)


def id64(text: str) -> int:
    """A producer id or an offset."""
    return _number(text, 0, INT64)


def id32(text: str) -> int:
    """A partition, a broker, or an amount that may be 0."""
    return _number(text, 0, INT32)


def epoch(text: str) -> int:
    """A producer epoch."""
    return _number(text, 0, INT16)


def count(text: str) -> int:
    """A count, at least 1."""
    return _number(text, 1, INT32)


def kafka_text(text: str) -> str:
    """Text that Kafka accepts: UTF-8, and not empty."""
    if not text:
        raise argparse.ArgumentTypeError("expected a value, found an empty one")
    try:
        text.encode()
    except UnicodeEncodeError as exc:  # the shell passed bytes that are not UTF-8
        raise argparse.ArgumentTypeError(f"expected UTF-8, found {text!r}") from exc
    return text


def topic_name(text: str) -> str:
    """A valid name of a topic."""
    if not is_topic_name(text):
        raise argparse.ArgumentTypeError(f"expected {TOPIC_NAME_RULE}, found {text!r}")
    return text


def redis_url(text: str) -> str:
    """The URL of a Redis, as it is given; parts of it may be references to a variable or a file."""
    return _url(text, "--redis-url", REDIS_URL_RULE, is_redis_url)


def _registry_url(text: str) -> str:
    """The URL of a schema registry, as it is given; parts of it may be references to a variable or a file."""
    return _url(text, "--schema-registry-url", REGISTRY_URL_RULE, is_registry_url)


def _url(text: str, flag: str, rule: str, is_valid: Callable[[str], bool]) -> str:
    if not is_valid(expanded(kafka_text(text), flag)):
        shown = text if has_reference(text) else shown_url(text)
        raise argparse.ArgumentTypeError(f"expected {rule}, found {shown!r}")
    return text


def _number(text: str, lowest: int, highest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not lowest <= value <= highest:
        raise argparse.ArgumentTypeError(f"expected a whole number from {lowest} to {highest}, found {text[:40]!r}")
    return value


# Derives flags from a settings model, so that each setting is defined once.

# The first key that is a part of a setting's name gives the placeholder of its flag.
_PLACEHOLDERS = {
    "ms": "MS",
    "bytes": "BYTES",
    "offsets": "OFFSETS",
    "prefixes": "PREFIXES",
    "fraction": "FRACTION",
    "budget": "COUNT",
    "incidents": "COUNT",
    "partitions": "COUNT",
    "topics": "REGEX",
    "topic": "TOPIC",
    "server": "SERVER",
    "config": "FILE",
    "file": "FILE",
    "checkpoint": "DIR",
    "url": "URL",
    "port": "PORT",
    "host": "HOST",
    "names": "NAMES",
    "name": "NAME",
    "master": "MASTER",
    "conf": "KEY=VALUE",
}


SHORT = {"bootstrap_server": ("-b",)}  # as in kcat


def add_flags(parser: argparse.ArgumentParser, model: type[BaseModel], only: Collection[str] | None = None) -> None:
    """Adds one flag for every field, or for those in `only`.

    Values stay text, because the model validates them with their source.
    """
    for name, spec in model.model_fields.items():
        if only is not None and name not in only:
            continue
        default = (
            "" if spec.is_required() or spec.default in (None, "", (), {}) else f" (default: {_shown(spec.default)})"
        )
        parser.add_argument(
            *SHORT.get(name, ()),
            f"--{name.replace('_', '-')}",
            action="append" if spec.default == {} else "store",
            metavar=_placeholder(name, spec),
            help=f"{spec.description}{default}".replace("%", "%%"),
        )


def add_config_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--config`."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="TOML file with the settings; a key is the name of a flag with _ instead of -",
    )


def _placeholder(name: str, spec: FieldInfo) -> str:
    values = choices(spec)
    parts = name.split("_")
    return f"{{{','.join(values)}}}" if values else next(_PLACEHOLDERS[part] for part in _PLACEHOLDERS if part in parts)


def _shown(default: object) -> object:
    return str(default).lower() if isinstance(default, bool) else default


def choices(spec: FieldInfo) -> tuple[str, ...]:
    """The values that a setting may have; empty if it is not a choice."""
    if spec.annotation is bool:
        return ("true", "false")
    kinds = (spec.annotation, *get_args(spec.annotation))
    return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())


# The flags that commands share, the connection that they lead to, and the question before a change.

_TIMEOUT_S = 15.0
_NO_SERVER = "none:1"  # where a command needs no server, and no source has one
_KEY_FILE = f"{ENVIRONMENT_PREFIX}EVENTS_KEY_FILE"
_BOOTSTRAP, _PROPERTIES = f"{ENVIRONMENT_PREFIX}BOOTSTRAP_SERVER", f"{ENVIRONMENT_PREFIX}COMMAND_CONFIG"


def always(_: argparse.Namespace) -> bool:
    """A command that needs a server, whatever its arguments are."""
    return True


def never(_: argparse.Namespace) -> bool:
    """A command that itself says which of its arguments need a server."""
    return False


def add_connection_flags(
    parser: argparse.ArgumentParser, needs_server: Callable[[argparse.Namespace], bool] = always
) -> None:
    """Adds `--bootstrap-server`, `--command-config` and `--config`; `take_settings` reads the other sources."""
    parser.add_argument(
        *SHORT["bootstrap_server"],
        "--bootstrap-server",
        type=kafka_text,
        metavar="SERVER",
        help=f"host:port of some brokers, comma-separated (or {_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help=f"Java client properties file with security settings (or {_PROPERTIES})",
    )
    add_config_flag(parser)
    parser.set_defaults(needs_server=needs_server)


def take_settings(parsed: argparse.Namespace) -> None:
    """Gives each flag of a command that is a setting of `run` its value: from the flag, the variable or the file.

    Raises:
        ConfigError: a setting is unknown or invalid, or there is no bootstrap server and the command needs one.
    """
    names = [name for name in RunSettings.model_fields if hasattr(parsed, name)]
    parsed.given = frozenset(name for name in names if getattr(parsed, name) is not None)
    without = {} if parsed.needs_server(parsed) else {"bootstrap_server": _NO_SERVER}
    settings = load_settings({name: getattr(parsed, name) for name in names}, parsed.config, defaults=without)
    for name in names:
        setattr(parsed, name, getattr(settings, name))
    if parsed.bootstrap_server == _NO_SERVER:
        parsed.bootstrap_server = None
    parsed.policy = settings.policy
    if hasattr(parsed, "owners_file"):
        parsed.owners = read_owners(parsed.owners_file)


def add_threshold_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the thresholds; `parsed.policy` has their values."""
    add_flags(parser, RunSettings, only=THRESHOLDS)


def add_owners_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--owners-file`; `parsed.owners` has the table."""
    add_flags(parser, RunSettings, only=("owners_file",))


def add_foreign_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--foreign-topics`."""
    parser.add_argument(
        "--foreign-topics",
        metavar="REGEX",
        help="regular expression; in topics that match, nothing is proven to hang, because another cluster's topics "
        "are copied into them byte for byte",
    )


def add_partition_flags(parser: argparse.ArgumentParser, topic: str = "the topic", *, is_required: bool) -> None:
    """Adds `--topic` and `--partition`; `topic` is the help text of the first."""
    parser.add_argument("--topic", type=kafka_text, required=is_required, help=topic)
    parser.add_argument("--partition", required=is_required, type=id32, metavar="N", help="the partition of --topic")


def add_events_flags(parser: argparse.ArgumentParser) -> None:
    """Adds `--events-topic`, `--schema-registry-url`, `--events-key-file`: how to read and verify the events."""
    parser.add_argument(
        "--events-topic",
        type=topic_name,
        metavar="TOPIC",
        help=f"the topic of the incident events (default: {EVENTS_TOPIC})",
    )
    parser.add_argument(
        "--schema-registry-url", type=_registry_url, metavar="URL", help="schema registry, for events in confluent-avro"
    )
    parser.add_argument(
        "--events-key-file",
        metavar="FILE",
        help=f"file with the keys that verify the signatures of events (or {_KEY_FILE})",
    )


def add_write_flags(parser: argparse.ArgumentParser, dry_run: str) -> None:
    """Adds the flags of a command that changes something: `--dry-run` and `--yes`."""
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def add_format_flag(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Adds `--format`, and `-o` as in kubectl; `meaning` is its help text."""
    parser.add_argument("-o", "--format", choices=("text", "json"), default="text", help=meaning)


def add_output_flags(parser: argparse.ArgumentParser, *, found_if: str | None = None, has_table: bool = True) -> None:
    """Adds `--format`, `--wide` for a table and, with the condition `found_if`, `--fail-on-found`."""
    add_format_flag(parser, "text, or one JSON object")
    if has_table:
        parser.add_argument(
            "--wide",
            action="store_true",
            help="every column, and one line for each row, even if it is wider than the terminal",
        )
    if found_if is not None:
        parser.add_argument("--fail-on-found", action="store_true", help=f"exit code 3 if {found_if}")


def confirmed(shown: Iterable[str], question: str, instead: str = "--yes") -> bool:
    """Shows what would happen, and asks on the terminal until the answer is yes or no; without a terminal it is no.

    `instead` are the flags that answer yes.
    """
    for line in shown:
        print(printable(line), file=sys.stderr)
    if not sys.stdin.isatty():
        print(f"txnwatch: expected a terminal for the confirmation, found none: use {instead}", file=sys.stderr)
        return False
    while True:
        print(f"{question} [yes/no] ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if line.strip() == "yes":
            return True
        if not line or line.strip() == "no":
            return False
        print("txnwatch: please write the whole word yes or no", file=sys.stderr)


def ask(parsed: argparse.Namespace, question: Callable[[Cluster], CommandAnswer]) -> int:
    """Connects, asks, writes the answer; returns the exit code.

    Raises:
        TxnwatchError: there is no answer; the message has the reason.
    """
    with connected(parsed.bootstrap_server, parsed.command_config, timeout_s=_TIMEOUT_S) as cluster:
        answer = question(cluster)
    return show(answer, parsed)


def show(answer: CommandAnswer, parsed: argparse.Namespace) -> int:
    """Writes the answer as the flags of the command want it; returns the exit code."""
    write(answer, parsed.format, is_wide=getattr(parsed, "wide", False))
    return answer.exit_code(fail_on_found=getattr(parsed, "fail_on_found", False))


@contextlib.contextmanager
def connected(bootstrap_server: str, command_config: Path | None, *, timeout_s: float) -> Iterator[Cluster]:
    """Connects to a cluster and reads its metadata, for the duration of one command.

    Raises:
        BrokerError: no broker answers.
        ConfigError: see `options_of`.
    """
    from txnwatch.streaming.client.cluster import Cluster  # noqa: PLC0415 - `run`, which has the same flags, starts without it

    options = options_of(bootstrap_server, command_config)
    cluster = Cluster(options.bootstrap, options.security, timeout_s=timeout_s)
    with contextlib.closing(cluster):
        cluster.refresh()
        yield cluster


def options_of(bootstrap_server: str, command_config: Path | None) -> SourceOptions:
    """The connection options: addresses and security.

    Raises:
        ConfigError: an address is not host:port, or the properties file cannot be read.
    """
    from txnwatch.streaming.source.options import parse_options  # noqa: PLC0415 - as above

    properties = {f"kafka.{name}": value for name, value in client_properties(command_config).items()}
    return parse_options({**properties, "kafka.bootstrap.servers": bootstrap_server, "subscribePattern": ".*"})
