"""This broker's replicas: leaders, epochs, and commands to the plane."""
