"""The search path of Spark's Python processes if txnwatch is in a zip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import txnwatch
from txnwatch.streaming.job.zipped_package import search_path


def test_an_installed_package_needs_no_search_path() -> None:
    assert search_path() == {}


def test_a_zip_is_found_on_the_driver_and_in_the_directory_of_an_executor(tmp_path: Path) -> None:
    archive = tmp_path / "txnwatch.zip"
    module = Path(sys.modules[search_path.__module__].__file__ or "")
    with ZipFile(archive, "w") as file:
        file.write(str(txnwatch.__file__), "txnwatch/__init__.py")
        for package in ("streaming", "streaming/job"):
            file.writestr(f"txnwatch/{package}/__init__.py", "")
        file.write(module, "txnwatch/streaming/job/zipped_package.py")
    script = "from txnwatch.streaming.job.zipped_package import search_path; print(search_path()['PYTHONPATH'])"
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); {script}"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{archive}:txnwatch.zip"
