"""Where events go: the events topic, Redis, a schema registry; encoding and signature."""
