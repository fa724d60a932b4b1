"""Pure decoders of Kafka's bytes: record batch headers, control records, the transaction log."""
