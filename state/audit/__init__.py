"""What exposes a cluster and its applications to hanging, lost or late transactions: checks of facts. Pure: no I/O."""
