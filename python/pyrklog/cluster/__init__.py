"""The cluster as a broker knows it, and the messages between brokers."""
