"""State as bytes, and back."""
