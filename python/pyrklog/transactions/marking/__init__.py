"""Writes the markers that end transactions."""
