"""The events of incidents: their order, the rules of their values, and heartbeats."""
