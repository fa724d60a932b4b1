"""The owners of transactions: the table of the settings, and what the form of a transactional id shows."""
