"""txnwatch: finds Kafka transactions that will never end, and names their owner."""

import logging
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("txnwatch")
except PackageNotFoundError:  # run from a zip on Spark's path, without metadata
    __version__ = "0+unknown"

logging.getLogger("txnwatch").addHandler(logging.NullHandler())  # the importing program chooses where messages go

__all__ = ["__version__"]
