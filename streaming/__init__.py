"""The inbound edge: raw record batches from brokers into facts, and the Spark job around the core."""
