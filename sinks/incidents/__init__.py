"""The ledger of incidents: candidates confirmed, events built, open incidents followed to their end."""
