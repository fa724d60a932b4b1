"""Output: incidents and their events, delivery to the events topic and Redis, and aborts."""
