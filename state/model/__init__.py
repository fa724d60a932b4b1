"""What the core speaks of: ids, transactions, facts, findings, incidents, errors, and its ports."""
