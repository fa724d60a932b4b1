"""Tests use what the product and the doubles make public; the private names that they still use are listed here.

The list may become shorter, not longer: what a test needs is part of the interface, and then it has a public name.
"""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[2]
NO_PRIVATE_NAMES = frozenset({"_asdict", "_exit", "_field_defaults", "_fields", "_make", "_replace"})  # of Python
REPLACES = frozenset({"object", "setattr"})  # the calls that replace a name: monkeypatch.setattr, mock.patch.object

ALLOWED: dict[str, list[str]] = {
    "bench/planning.py": ["_lister"],
    "bench/scan_ways.py": ["_socket"],
    "e2e/test_abort.py": ["_sequences", "_tries"],
    "fuzz/connection_targets.py": ["_client"],
    "integration/test_kafka_transactions.py": ["_SubParsersAction", "_actions"],
    "integration/test_write_rates.py": ["_socket"],
    "property/test_valid_listings.py": ["_censuses"],
    "property/test_bucket_log.py": [
        "_forget_idle",
        "_objects",
        "_rows",
        "_sequence",
        "_take",
        "_times",
        "_tokens",
        "_written_ms",
    ],
    "property/test_first_read_fold_properties.py": ["_live", "_note", "_uses"],
    "support/live_script.py": ["_sequences"],
    "unit/metrics/test_collector.py": ["_acted"],
    "unit/state/incidents/test_ledger_resolved_long_ago.py": ["_on_topic"],
    "unit/state/detection/test_look_times.py": ["_heap"],
    "unit/streaming/client/test_time_budgets.py": ["_connections"],
    "unit/streaming/job/test_checkpoint_lease.py": ["_create", "_me"],
    "unit/streaming/log/test_first_read_fold.py": ["_chunks", "_live", "_owner", "_uses"],
    "unit/streaming/source/test_offset_memory.py": ["_lister"],
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NO_PRIVATE_NAMES


def names_in(node: ast.AST) -> list[str]:
    """Names in an expression that may be private names of something else."""
    match node:
        case (
            ast.Attribute(value=ast.Name(id="self" | "cls")) | ast.Attribute(value=ast.Call(func=ast.Name(id="super")))
        ):
            return []
        case ast.Attribute(attr=name):
            return [name]
        case ast.ImportFrom(names=imported):
            return [alias.name for alias in imported]
        case ast.Call(func=ast.Attribute(attr=called), args=args) if called in REPLACES:
            return [arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def private_names(path: Path) -> set[str]:
    found = [name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for name in names_in(node)]
    return set(filter(is_private, found))


def test_no_test_uses_another_private_name() -> None:
    used = {str(path.relative_to(TESTS)): private_names(path) for path in sorted(TESTS.rglob("*.py"))}
    assert {name: sorted(found) for name, found in used.items() if found} == ALLOWED
