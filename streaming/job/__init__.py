"""The Spark query around the core, and the checks before it starts."""
