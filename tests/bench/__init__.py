"""Benchmarks: ratios in one run against what a user would use instead. `make bench`; no test asserts a time."""
