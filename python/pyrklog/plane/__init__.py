"""The Rust data plane as Trio sees it."""
