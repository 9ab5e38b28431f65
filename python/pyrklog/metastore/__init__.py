"""The metadata store: ZooKeeper's semantics behind one interface, and an embedded store."""
