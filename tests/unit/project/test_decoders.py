"""Types of msgspec are described before there are threads.

msgspec describes a type when it is used for the first time. Two threads that do so at the same moment end the process
with SIGSEGV: the second one uses a half-filled description. A decoder at the level of the module describes the type
under Python's import lock.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from support.clusters_world import facts_of_world
from support.page_world import a_busy_cluster
from txnwatch.page.live_picture import encode

ROOT = Path(__file__).parents[3]
SOURCES = sorted(path for name in ("state", "streaming", "sinks", "src") for path in (ROOT / name).rglob("*.py"))
_RUNS = 4  # without the decoders of the module about every second run ends with SIGSEGV
_AT_ONCE = """
import json, sys, threading
sys.setswitchinterval(1e-5)
{imports}
value = sys.stdin.buffer.read()
begin = threading.Barrier(4)
def decode():
    begin.wait()
    {call}
threads = [threading.Thread(target=decode) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
"""
READERS = {
    "facts": ("from txnwatch.page.watcher_facts import decoded", "decoded(value)"),
    "events": (
        "from txnwatch.sinks.delivery.encoding import event_of",
        "[event_of(one) for one in json.loads(value)['incidents']]",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_several_threads_decode_for_the_first_time_at_the_same_moment(name: str) -> None:
    imports, call = READERS[name]
    value = encode(facts_of_world(a_busy_cluster(), "EU", "watch-0:/c"))
    code = _AT_ONCE.format(imports=imports, call=call)
    for _ in range(_RUNS):
        ended = subprocess.run([sys.executable, "-c", code], input=value, capture_output=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr.decode()) == (0, "")


def _uses(tree: ast.AST) -> set[str]:
    """The types that are described when they are used for the first time."""
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    converted = {ast.unparse(one.args[1]) for one in calls if ast.unparse(one.func) == "msgspec.convert"}
    decoded = {
        ast.unparse(word.value)
        for one in calls
        if ast.unparse(one.func) in {"msgspec.json.decode", "msgspec.msgpack.decode"}
        for word in one.keywords
        if word.arg == "type"
    }
    return converted | decoded


def _described(tree: ast.Module) -> set[str]:
    """The types that have a decoder at the level of the module."""
    return {
        ast.unparse(call.args[0])
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(call := statement.value, ast.Call)
        if ast.unparse(call.func) in {"msgspec.json.Decoder", "msgspec.msgpack.Decoder"}
    }


def test_a_module_has_a_decoder_of_each_type_that_it_decodes() -> None:
    trees = {path.relative_to(ROOT): ast.parse(path.read_text()) for path in SOURCES}
    missing = {str(path): sorted(found) for path, tree in trees.items() if (found := _uses(tree) - _described(tree))}
    assert missing == {}
