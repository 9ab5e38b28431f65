"""What a start looks at and says before the broker serves."""
