"""An S3 with conditional writes (moto), and the jars with which Spark reaches it."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from support.hdfs import VERSION
from txnwatch_demo.embedded.jars import jars
from txnwatch_demo.embedded.real_servers import ServerProcess, free_ports

_MODULES = (("org.apache.hadoop", "hadoop-aws", VERSION),)
_BUCKET = "bucket"
_SERVER = Path(__file__).with_name("s3_server.py")


class EmbeddedS3:
    """An S3 on the loopback interface, with one bucket; a context manager.

    Without `is_conditional` it is a store that ignores the conditions of a write.
    """

    def __init__(self, directory: Path, *, is_conditional: bool = True) -> None:
        self._directory = directory
        self._port = free_ports(1)[0]
        kind = "conditional" if is_conditional else "unconditional"
        self._server = ServerProcess("S3", [sys.executable, str(_SERVER), str(self._port), kind], directory / "s3.log")

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._server.start(self._has_bucket, timeout_s=120.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()

    def uri(self, path: str) -> str:
        """The address of a path."""
        return f"s3a://{_BUCKET}/{path}"

    def settings(self) -> dict[str, str]:
        """The settings of Hadoop's client."""
        return {
            "fs.s3a.endpoint": f"http://127.0.0.1:{self._port}",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "an-access-key",
            "fs.s3a.secret.key": "kanarienvogel",
            # The asynchronous client takes this server's answer 100 (Continue) for the answer of the upload.
            "fs.s3a.connection.expect.continue": "false",
            "fs.s3a.optimized.copy.from.local.enabled": "false",
        }

    def _has_bucket(self) -> bool:
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"http://127.0.0.1:{self._port}/{_BUCKET}", method="PUT"), timeout=10
            ):
                return True
        except (OSError, urllib.error.URLError):
            return False


def s3_classpath() -> str:
    """Hadoop's client for S3 with the SDK of AWS (660 MB, downloaded once), for SPARK_DIST_CLASSPATH."""
    return f"{jars(f'hadoop-aws-{VERSION}', _MODULES)}/*"
