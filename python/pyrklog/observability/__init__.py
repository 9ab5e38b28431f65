"""What a broker tells about itself: metrics and health over HTTP. See observability.md."""
