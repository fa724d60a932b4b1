"""The plans of the ledger and of every abort; the events of incidents, their order and values; and heartbeats."""
