"""Requests about transactions, groups, rights and settings, and their answers as typed values."""
