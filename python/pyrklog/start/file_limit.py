"""The process's limit of open files."""

from __future__ import annotations

import resource

from pyrklog.base.logs import get_logger

OPEN_FILES_WARN = 4096

log = get_logger("broker")


def raise_file_limit() -> None:
    """Raises the soft limit to the hard one: segments and connections need many files."""
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
