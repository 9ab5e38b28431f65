"""What client metrics take from the Rust extension."""

from pyrklog._core import Pattern, crc32c, decompress

__all__ = ["Pattern", "crc32c", "decompress"]
