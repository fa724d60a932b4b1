"""Encodes the state, and stores it as a log."""
