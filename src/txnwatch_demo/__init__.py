"""The demo of txnwatch: a real Kafka, a real Redis, a real hang. A distribution of its own: txnwatch never imports it."""
