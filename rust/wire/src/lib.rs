//! Bytes to frames, requests, responses and record batches, and back. No I/O, no clock.
