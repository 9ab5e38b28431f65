"""``python -m tests.upgrade VERSION`` makes the fixtures of this version; see ``making.py``."""

import os
import sys
import tempfile
from pathlib import Path

from tests.support.zookeeper_server import ZooKeeperServer
from tests.upgrade.making import FIXTURES, make_alone, make_cluster, remove_earlier


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.upgrade VERSION")
    os.environ["PYRKLOG_CONFIG"] = f"{os.devnull}/config.toml"
    fixtures = FIXTURES / sys.argv[1]
    remove_earlier(fixtures)
    with tempfile.TemporaryDirectory(prefix="pyrklog-fixture-") as temporary:
        folder = Path(temporary)
        make_alone(folder / "alone", fixtures)
        zookeeper = ZooKeeperServer(folder / "zookeeper")
        zookeeper.start()
        try:
            make_cluster(f"{zookeeper.address}/pyrklog", folder / "cluster", fixtures)
        finally:
            zookeeper.kill()
    for file in sorted(fixtures.iterdir()):
        print(f"{file}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
