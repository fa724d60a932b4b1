"""Carries out the plans of the automatic abort and of the abort by hand; has the lease between instances."""
