"""Finds the java program, which Spark needs.

Separate from `spark_start.py`, so that `doctor` does not import what only `run` needs.
"""

from __future__ import annotations

import os
import shutil

from txnwatch.state.model.errors import TxnwatchError


def java() -> str:
    """The path of the java program.

    Raises:
        TxnwatchError: Java is missing.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if found is None:
        raise TxnwatchError("expected Java 17 or later, found no `java`: install one, or set JAVA_HOME")
    return found
