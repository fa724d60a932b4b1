"""txnwatch: finds Kafka transactions that will never end, and names their owner."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("txnwatch")
except PackageNotFoundError:  # run from a zip on Spark's path, without metadata
    __version__ = "0+unknown"

__all__ = ["__version__"]
