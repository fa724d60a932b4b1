"""Gathers the facts that `txnwatch audit` judges: with requests that only read, and few of them."""
