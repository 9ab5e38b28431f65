"""Connections to the other brokers of the cluster."""
