"""The controller: who leads what, and the life of topics."""
