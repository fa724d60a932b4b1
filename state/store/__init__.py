"""The state as bytes, and back."""
