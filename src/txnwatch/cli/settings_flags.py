"""Derives flags from a settings model, so that each setting is defined once."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import BaseModel


def add_flags(parser: argparse.ArgumentParser, model: type[BaseModel], only: Collection[str] | None = None) -> None:
    """Adds one flag for every field, or for those in `only`, and `--config`.

    Values stay text, because the model validates them with their source.
    """
    for name, spec in model.model_fields.items():
        if only is not None and name not in only:
            continue
        default = "" if spec.is_required() or spec.default in (None, "", ()) else f" (default: {spec.default})"
        metavar = "REGEX" if name == "topics" else name.rpartition("_")[2].upper()
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar=metavar,
            help=f"{spec.description}{default}".replace("%", "%%"),
        )
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with the same keys, with _ instead of -")


def flag_values(parsed: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """The values of all flags; None for a flag that was not given."""
    return {name: getattr(parsed, name) for name in model.model_fields}
