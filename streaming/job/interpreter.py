"""Runs the interpreter of Spark's Python workers once before Spark starts.

Spark waits ten seconds for the connection of a worker that has ended at once, and its error names no program.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from txnwatch.state.model.errors import SparkError

_ANSWERS_S = 30.0
_ANSWER = "a Python answers"
_ADVICE = "check PYSPARK_PYTHON: it must be a Python of the driver's version, with txnwatch and all its dependencies"


def check_interpreter(interpreter: str, *, answers_s: float = _ANSWERS_S) -> None:
    """Checks that a program is a Python. The interpreter of the driver itself is not run.

    Raises:
        SparkError: there is no such program, it is something else, it cannot be run, or it does not answer in time.
    """
    if interpreter == sys.executable:
        return
    if shutil.which(interpreter) is None:
        raise SparkError(f"PYSPARK_PYTHON: expected a Python interpreter, found no program {interpreter}")
    found = _what_is_wrong(interpreter, answers_s)
    if found is not None:
        raise SparkError(
            f"PYSPARK_PYTHON: expected a Python interpreter, found {interpreter}, which {found}; {_ADVICE}"
        )


def _what_is_wrong(interpreter: str, answers_s: float) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own program
            [interpreter, "-c", f"print({_ANSWER!r})"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=answers_s,
        )
    except subprocess.TimeoutExpired:
        return f"does not answer within {answers_s:.0f} s"
    except OSError as exc:
        return f"cannot be run: {exc.strerror}"
    if done.returncode != 0:
        return f"ends with exit code {done.returncode}{_last_line(done.stderr)}"
    return None if _ANSWER.encode() in done.stdout else "does not run Python code"


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""
