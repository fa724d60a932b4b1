"""Serves the metrics of a watch, if its settings say so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from txnwatch.config import RunSettings
from txnwatch.metrics.collector import Metrics
from txnwatch.metrics.server import MetricsServer
from txnwatch.metrics.web_config import read_web_config
from txnwatch.state.model.ports import Log


@contextlib.contextmanager
def served_metrics(settings: RunSettings, metrics: Metrics, log: Log) -> Iterator[MetricsServer | None]:
    """Serves the metrics while the block runs, if `metrics_port` is set; yields the server.

    Raises:
        ConfigError: the port is in use, or the web configuration file is invalid.
    """
    port = settings.metrics_port
    if port is None:
        yield None
        return
    web = read_web_config(settings.metrics_web_config_file)
    server = MetricsServer(
        metrics.registry,
        settings.metrics_host,
        port,
        lambda: metrics.is_judging,
        web,
        metrics.count_refused_connection,
    )
    log.info(f"metrics at {server.url}/metrics")
    try:
        yield server
    finally:
        server.close()
