"""Text for people: escaped for the place it goes to, long lists made short."""
