"""The demo: a real Kafka, a real Redis, a real hang. A distribution of its own, which txnwatch never imports."""
