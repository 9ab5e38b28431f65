"""Whether a metadata directory is that of a broker which is alone or of one in a cluster.

What a member of a cluster acknowledges alone is lost when it follows again, and what a broker that
is alone has is unknown to a cluster. So a directory that was used in one way is refused in the
other.

``zookeeper.json`` says that the broker is a member: ``{"version": 1, "zookeeper.connect": …}``. It
is written before the broker registers. A broker that is alone has an embedded store instead.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyrklog.durable import replace_file
from pyrklog.errors import ConfigError, StartError
from pyrklog.metastore.database import DATABASE_NAME

MEMBER_FILE = "zookeeper.json"
_VERSION = 1


def check_standing(meta_dir: Path, zookeeper: str | None) -> None:
    """Raises :class:`ConfigError` where the directory is of the other kind. Writes nothing."""
    if zookeeper is None:
        _refuse_member(meta_dir / MEMBER_FILE)
    elif (meta_dir / DATABASE_NAME).exists():
        raise ConfigError(
            f"{meta_dir} is that of a broker that is alone: ZooKeeper ({zookeeper}) knows nothing "
            "of its topics.",
            fix="start it without zookeeper.connect, or choose another directory with --data",
        )


def _refuse_member(file: Path) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartError(f"{file}: {error.strerror}.") from None
    try:
        connect = str(json.loads(text)["zookeeper.connect"])
    except (ValueError, KeyError, TypeError):
        connect = "HOST:PORT"
    raise ConfigError(
        f"{file.parent} is that of a broker in a cluster ({connect}): what it would acknowledge "
        "alone is lost when it follows there again.",
        fix=f"start it with --zookeeper {connect}; to take this copy of the data out of the "
        f"cluster for good, remove {file}",
    )


def note_member(meta_dir: Path, zookeeper: str) -> None:
    """Notes that the directory is a member's. Raises :class:`StartError`."""
    content = json.dumps({"version": _VERSION, "zookeeper.connect": zookeeper})
    file = meta_dir / MEMBER_FILE
    try:
        if file.exists() and file.read_text(encoding="utf-8") == content:
            return
        meta_dir.mkdir(parents=True, exist_ok=True)
        replace_file(file, content.encode())
    except OSError as error:
        raise StartError(f"{file}: {error.strerror}.") from None
