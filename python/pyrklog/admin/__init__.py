"""``ClusterService`` for clients' changes and queries: topics, options, producer ids."""
