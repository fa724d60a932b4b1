"""A small simulated cluster with a seed, the real reader and state, and oracles that know the true state."""
