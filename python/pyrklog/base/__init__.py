"""What every package may use; it knows nothing of the broker."""
