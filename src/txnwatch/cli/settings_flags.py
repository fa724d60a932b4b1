"""Derives flags from a settings model, so that each setting is defined once."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

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
    "master": "MASTER",
    "conf": "KEY=VALUE",
}


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


def flag_values(parsed: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """The values of all flags; None for a flag that was not given."""
    return {name: getattr(parsed, name) for name in model.model_fields}
