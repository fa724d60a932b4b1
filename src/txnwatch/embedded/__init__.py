"""A real Kafka and a real Redis on this machine, without Docker: what the demo and the tests run against."""
