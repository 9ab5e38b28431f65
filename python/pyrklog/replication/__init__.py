"""This broker's replicas: who leads, in which epoch, and what the plane is told."""
