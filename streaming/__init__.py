"""Input from Kafka: broker connections, decoding of record batches into facts, the Spark job around the core."""
