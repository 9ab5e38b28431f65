"""The time that test records carry."""

import time

# An hour ago, on a full second: brokers delete records of a week ago, whoever wrote them.
START_MS = (time.time_ns() // 1_000_000_000 - 3600) * 1000
