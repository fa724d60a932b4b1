"""Delivery of events: the events topic, Redis, a schema registry; encoding and signature."""
