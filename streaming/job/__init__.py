"""The Spark query around the core, and what is checked before it starts."""
