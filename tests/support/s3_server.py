"""The process of support/s3.py: python s3_server.py PORT conditional|unconditional."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

_S3 = DomainDispatcherApplication(create_backend_app)


def without_conditions(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answers a write as a store that does not know If-None-Match."""
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return _S3(environ, start_response)


if __name__ == "__main__":
    run_simple(
        "127.0.0.1", int(sys.argv[1]), _S3 if sys.argv[2] == "conditional" else without_conditions, threaded=True
    )
