"""What Spark needs beside txnwatch: the java program, and the packages of the extra `spark`.

Separate from `spark_start.py`, so that `doctor` does not import what only `run` needs.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

from txnwatch.state.model.errors import ConfigError, TxnwatchError

_PACKAGES = ("pyspark", "pandas", "pyarrow")


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


def check_packages(command: str) -> None:
    """Checks that the packages of the extra `spark` are installed, which this command needs.

    Raises:
        ConfigError: a package is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        found = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError(f"{command} needs Spark, and {found}: pip install 'txnwatch[spark]' (docs/install.md)")
