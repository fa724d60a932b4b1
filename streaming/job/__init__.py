"""The Spark query around the core, its settings, and its checkpoint."""
