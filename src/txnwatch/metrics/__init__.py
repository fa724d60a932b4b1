"""Prometheus metrics: the table of all of them, their values, their server."""
