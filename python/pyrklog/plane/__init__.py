"""What knows the Rust side: the data plane as Trio sees it."""
