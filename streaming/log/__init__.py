"""Reading logs: ranges, folds, and searches of one log for one question."""
