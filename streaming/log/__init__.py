"""Reading logs: ranges, folds, and one-time searches of a log."""
