"""The command line: one verb per file, one boundary for errors."""
