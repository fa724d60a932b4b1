"""What fresh answers prove: a hang confirmed, its outcome, its end, who waits for it."""
