"""The timestamps of test records."""

import time

# An hour ago, on a full second. Brokers would delete records that are a week old.
START_MS = (time.time_ns() // 1_000_000_000 - 3600) * 1000
