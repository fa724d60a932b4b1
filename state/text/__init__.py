"""Text for people: escaped for its destination, long lists shortened."""
