"""Checks of a cluster and of the rights of a user, before a watch starts and for `txnwatch doctor`."""
