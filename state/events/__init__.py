"""Which values an event may have, which event of several writers counts, and what heartbeats show about watchers."""
