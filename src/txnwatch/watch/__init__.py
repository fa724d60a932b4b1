"""The state of a running watch: coverage, missing evidence, throttling, heartbeats."""
