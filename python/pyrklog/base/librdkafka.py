"""What all handles of librdkafka have: pauses between attempts, and each complaint once."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping

RECONNECT: Mapping[str, int] = {
    # By default a consumer tries a broker that is away twenty times a second for as long as it is.
    "reconnect.backoff.ms": 500,
    "reconnect.backoff.max.ms": 3000,
}
KINDS_MAX = 100
"""Complaints that are remembered; further ones are left out."""
_CHANGING = re.compile(r"\([^()]*\)|\d+(ms|s)\b")
"""Times and counts of repetitions, which make each line another one."""


class Once(logging.Filter):
    """Lets a complaint pass the first time."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = kind_of(record.getMessage())
        if kind in self._told or len(self._told) >= KINDS_MAX:
            return False
        self._told.add(kind)
        return True


def kind_of(line: str) -> str:
    return _CHANGING.sub("", line)


def once_logger(name: str) -> logging.Logger:
    """Writes librdkafka's complaints to standard error, each once."""
    logger = logging.getLogger(name)
    logger.propagate = False
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(Once())
        logger.addHandler(handler)
    return logger
