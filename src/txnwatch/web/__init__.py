"""The HTTP server of a watch: the page, its JSON, the metrics and the probes, on one port."""
