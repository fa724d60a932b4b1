"""txnwatch: finds Kafka transactions that will never end, and names their owner."""

import logging

logging.getLogger("txnwatch").addHandler(logging.NullHandler())  # the importing program chooses where messages go

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """The version, when something asks for it: Spark's Python processes do not need what reads it."""
    if name != "__version__":
        raise AttributeError(f"module 'txnwatch' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("txnwatch")
    except PackageNotFoundError:  # run from a zip on Spark's path, without metadata
        return "0+unknown"
