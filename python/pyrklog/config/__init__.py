"""Every option: Kafka's name, type, default, bounds, documentation; and where values come from."""
