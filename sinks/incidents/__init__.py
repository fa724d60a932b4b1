"""Carries out the plans of the ledger (state/incidents), and keeps its evidence in a file."""
