"""Exit codes of all commands."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    EXISTS = 5
    DENIED = 6
    TIMED_OUT = 7
    DIFFERS = 8
    """Also: unhealthy, not safe."""
    PARTIAL = 9
    DISK = 74
    """Of a broker: a disk or file failed."""
    TEMPORARY = 75
    """Of a broker: something outside is in the way (a port, a lock); a retry may work."""
    CONFIGURATION = 78
    """Of a broker: wrong configuration; a service manager must not restart it unchanged."""
    INTERRUPTED = 130
    TERMINATED = 143
