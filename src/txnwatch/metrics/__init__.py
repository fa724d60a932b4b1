"""Prometheus metrics: the table of all metrics, their values, and the HTTP server."""
