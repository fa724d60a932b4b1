"""The Spark data source: lists partition ends, plans batches, reads the logs and returns facts."""
