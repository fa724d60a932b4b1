"""The soak: healthy applications, constant disturbances and real hangs for an hour. `make soak` runs it."""
