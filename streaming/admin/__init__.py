"""Requests about transactions, groups and settings, and their answers as typed values."""
