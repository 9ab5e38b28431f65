"""How many files the process may have open."""

from __future__ import annotations

import resource

from pyrklog.base.logs import get_logger

OPEN_FILES_WARN = 4096

log = get_logger("broker")


def raise_file_limit() -> None:
    """Segments and connections need many file handles: the soft limit becomes the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("file_limit_kept", limit=soft, reason=str(error))
            hard = soft
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_WARN:
        log.warning(
            "file_limit_low",
            limit=hard,
            needed="three for each segment of each partition, and one for each connection",
            fix="ulimit -n 100000 before the start, or LimitNOFILE=100000 in the systemd unit",
        )
