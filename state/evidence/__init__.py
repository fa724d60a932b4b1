"""What fresh reads prove: that a hang is real, its outcome, its end, and the affected consumer groups."""
