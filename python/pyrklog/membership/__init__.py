"""The session with the metadata store, and the broker's registration."""
