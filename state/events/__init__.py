"""Which values an event may have, and how large it may be."""
