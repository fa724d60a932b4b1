"""A real Kafka and a real Redis on this machine, without Docker, for the demo and the tests."""
