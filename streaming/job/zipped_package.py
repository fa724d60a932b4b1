"""Where Python finds txnwatch if spark-submit has brought it as a zip.

The process that lists the source of a streaming query does not find the files of `--py-files` (Spark 4.3.0, seen with a
standalone master). So the zip is in the search path of every Python process.
"""

from __future__ import annotations

import os
import zipimport
from pathlib import Path

import txnwatch


def search_path() -> dict[str, str]:
    """The environment of Spark's Python processes: the zip on the driver, and in the directory of an executor."""
    loader = getattr(txnwatch.__spec__, "loader", None)
    if not isinstance(loader, zipimport.zipimporter):
        return {}
    archive = Path(loader.archive).absolute()
    return {"PYTHONPATH": os.pathsep.join((str(archive), archive.name))}
