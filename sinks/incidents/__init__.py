"""The ledger of incidents: confirms candidates, builds events, follows open incidents to their end."""
