"""What an event may hold, and how large it may be."""
