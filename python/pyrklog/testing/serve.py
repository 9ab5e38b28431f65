"""``python -m pyrklog.testing.serve DESCRIPTOR OPTIONS...``: ``pyrklog serve`` with a door for
faults (:mod:`.door`). Only :class:`TestBroker` starts it; ``pyrklog serve`` has no such option."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from pyrklog.base.problems import Problem, lines
from pyrklog.cli.serve import parse_fast, serve

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig


def main(arguments: list[str]) -> int:
    descriptor, *rest = arguments
    options = parse_fast(rest)
    if options is None:
        what = f"TestBroker cannot pass on {' '.join(rest)}"
        print(lines(Problem.USAGE, what), file=sys.stderr)
        return int(Problem.USAGE.exit)
    return serve(options, partial(_run, int(descriptor)))


def _run(descriptor: int, config: BrokerConfig) -> int:
    from pyrklog.broker import run_broker
    from pyrklog.testing.door import door_plane

    return run_broker(config, door_plane(descriptor))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
