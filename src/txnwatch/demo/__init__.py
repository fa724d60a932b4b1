"""The demo: a real Kafka, a real Redis, a real hang. Nothing of the detector imports it."""
