"""The automatic abort: one marker at a time, verified, by the instance that holds the lease."""
