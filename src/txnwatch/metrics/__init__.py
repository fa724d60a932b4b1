"""Prometheus metrics: the table of all metrics, and what changes their values."""
