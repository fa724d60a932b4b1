"""Connections to brokers: one socket, security, metadata, offsets."""
