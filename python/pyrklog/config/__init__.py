"""Every option: Kafka's name, type, default, bounds, documentation; and the sources of values."""
