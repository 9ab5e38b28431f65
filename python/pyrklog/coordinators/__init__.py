"""What the coordinators of groups and of transactions share."""
