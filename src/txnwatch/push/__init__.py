"""Push: incident events over HTTP to other systems, and alerts to Alertmanager."""
