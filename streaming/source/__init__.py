"""The Spark data source: what is listed, planned, read and handed over as facts."""
