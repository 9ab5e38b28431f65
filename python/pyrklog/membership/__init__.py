"""This broker's place in its cluster: the session with the metadata store, and the registration."""
