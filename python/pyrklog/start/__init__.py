"""Checks and messages of a start, before the broker serves."""
