"""What clients may change and ask: topics, options, producer ids. Behind ``ClusterService``."""
