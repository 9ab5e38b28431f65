"""How far consumer groups are behind, in records and in seconds; see lag.md."""
