"""The types of the core: ids, transactions, facts, findings, incidents, errors, and ports to the outside."""
