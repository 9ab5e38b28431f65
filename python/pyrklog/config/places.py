from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyrklog.base.problems import Problem
from pyrklog.config.properties import PropertiesError, parse_properties
from pyrklog.errors import ConfigError

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig

_META_NAME = "meta"
_STORE_NAME = "store.db"
_LOGS_NAME = "logs"
_PARTITION = re.compile(r".+-\d+", re.ASCII)
_SHOWN_MAX = 3
_SQLITE_HEADER = 100
_APPLICATION_ID = slice(68, 72)
META_PROPERTIES = "meta.properties"
"""In each log directory that was used; its cluster and its broker."""


def check_places(config: BrokerConfig) -> None:
    """Refuses nested log directories, those whose metadata is in another store than ours, a data
    directory beside which others are named, and places that this user cannot enter."""
    cache_dir = config.string("pyrklog.cache.dir")
    try:
        _check_places(config)
        if cache_dir is not None and config.integer("pyrklog.cache.max.bytes") != 0:
            check_cache_dir(cache_dir)
    except OSError as error:
        place = Path(error.filename).parent if error.filename else config.data_dir
        raise ConfigError(
            Problem.DIRECTORY_UNUSABLE,
            f"cannot enter {place}: {error.strerror or error}",
            fix="make it accessible for this user, or choose another place with --data",
        ) from None


def check_cache_dir(text: str) -> None:
    """A directory that was asked for by name: without it the broker would be slower unnoticed."""
    wrong = wrong_with_directory(Path(text))
    if wrong is not None:
        raise ConfigError(
            Problem.DIRECTORY_UNUSABLE,
            f"pyrklog.cache.dir: {wrong}.",
            fix="name a directory in shared memory, or set pyrklog.cache.max.bytes=0 to do without "
            "a block cache",
        )


def wrong_with_directory(directory: Path) -> str | None:
    if not directory.is_dir():
        return f"{directory} is not a directory"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"{directory} cannot be written to"
    return None


def _check_places(config: BrokerConfig) -> None:
    log_dirs = config.log_dirs
    _refuse_nested(log_dirs)
    _refuse_left_out(config, log_dirs)
    _refuse_within_others(config.meta_dir, log_dirs)
    own = config.meta_dir
    if not (own / _STORE_NAME).is_file() and not any(map(_is_used, log_dirs)):
        _refuse_nothing_to_adopt(config, log_dirs)
    if config.zookeeper is not None or config.string("pyrklog.meta.dir") is not None:
        return  # an explicitly named store is meant
    for log_dir in log_dirs:
        for other in _other_stores(log_dir, own):
            if _belongs_to(log_dir, other, own):
                raise _two_stores(log_dir, other, own)


def _refuse_nested(log_dirs: list[Path]) -> None:
    # Links may hide that one contains the other.
    real = [(path, path.resolve()) for path in log_dirs]
    for inner, inner_real in real:
        for outer, outer_real in real:
            if inner is outer:
                continue
            if inner_real == outer_real:
                raise ConfigError(
                    Problem.DIRECTORIES_MISPLACED,
                    f"The log directories {outer} and {inner} are the same directory.",
                    fix="name it once in log.dirs",
                )
            if outer_real in inner_real.parents:
                raise ConfigError(
                    Problem.DIRECTORIES_MISPLACED,
                    f"The log directory {inner} lies in the log directory {outer}.",
                    fix="put log directories side by side in log.dirs",
                )


def _refuse_within_others(meta_dir: Path, log_dirs: list[Path]) -> None:
    """Refuses places within a log directory or a metadata directory, for example a partition's
    folder that was given as the data directory."""
    own = meta_dir.resolve()
    for place in (*log_dirs, meta_dir):
        if _is_used(place) or (place / _STORE_NAME).is_file():
            continue  # its records are served wherever they are
        for above in place.resolve().parents:
            if _is_used(above):
                kind = "log directory"
            elif above != own and _is_store(above / _STORE_NAME):
                kind = "metadata directory"
            else:
                continue
            raise ConfigError(
                Problem.DIRECTORIES_MISPLACED,
                f"{place} lies in the {kind} {above}.",
                fix="choose a directory outside of it",
            )


def _refuse_left_out(config: BrokerConfig, log_dirs: list[Path]) -> None:
    """Refuses to serve other directories than those of the data directory that was named.

    Its metadata would be served with empty partitions, made anew in the other directories.
    """
    data = config.given.get("pyrklog.data.dir")
    name = "log.dirs" if "log.dirs" in config.given else "log.dir"
    other = config.given.get(name)
    if data is None or other is None:
        return
    served = {path.resolve() for path in log_dirs}
    data_dir = config.data_dir
    for own in (data_dir, data_dir / _LOGS_NAME):
        if not _is_used(own) or own.resolve() in served:
            continue
        data_option = (
            data.origin if data.origin == "--data" else f"pyrklog.data.dir ({data.origin})"
        )
        named = ",".join(map(str, log_dirs))
        raise ConfigError(
            Problem.DIRECTORIES_MISPLACED,
            f"{data_option} is {data_dir}, whose records are in {own}, but {name} "
            f"({other.origin}) names {named}: its topics would begin anew there, empty.",
            fix=f"to serve {data_dir} add --set log.dirs={own}; to serve {named} leave "
            f"{data_option} out",
        )


def _is_used(log_dir: Path) -> bool:
    return (log_dir / META_PROPERTIES).is_file()


def _refuse_nothing_to_adopt(config: BrokerConfig, log_dirs: list[Path]) -> None:
    """Refuses a new broker where Kafka's records were meant: one level too high, or with Kafka's
    ZooKeeper but without its directory."""
    if config.zookeeper is not None:
        return  # a member of a cluster adopts nothing
    chosen = "log.dirs" in config.given or "log.dir" in config.given
    for place in log_dirs if chosen else [config.data_dir]:
        found = [path for path in _used_below(place) if path not in log_dirs]
        if found:
            raise _one_level_off(place, found, is_data=not chosen)
    if config.string("pyrklog.adopt.zookeeper") is not None:
        named = ", ".join(map(str, log_dirs))
        raise ConfigError(
            Problem.HANDOVER,
            f"pyrklog.adopt.zookeeper is set, but there is nothing to adopt: {named} has no "
            f"{META_PROPERTIES} of Kafka.",
            fix="give log.dirs as Kafka had it (--data, --config or --set log.dirs=...), or leave "
            "--adopt-zookeeper out for a new broker",
        )


def _one_level_off(place: Path, found: list[Path], *, is_data: bool) -> ConfigError:
    if found == [place]:
        what = f"{place} holds partitions"
    else:
        what = f"{place} is no log directory, but holds {', '.join(map(str, found[:_SHOWN_MAX]))}"
    if is_data and len(found) == 1 and found != [place]:
        option = f"--data {found[0]}"
    else:
        option = f"--set log.dirs={','.join(map(str, found))}"
    return ConfigError(
        Problem.DIRECTORIES_MISPLACED,
        what,
        why="a new and empty broker would start beside the records there",
        fix=f"to serve them give {option}; for a new broker choose a directory of its own",
    )


def _used_below(place: Path) -> list[Path]:
    """Log directories at a place and right below it: with ``meta.properties`` or partitions."""
    below = _folders_in(place)
    if any(map(_is_partition, below)):
        return [place]
    return [item for item in below if _is_used(item) or any(map(_is_partition, _folders_in(item)))]


def _folders_in(place: Path) -> list[Path]:
    """Without what cannot be read: others' directories may lie beside ours."""
    try:
        return sorted(item for item in place.iterdir() if item.is_dir())
    except OSError:
        return []


def _is_partition(folder: Path) -> bool:
    return _PARTITION.fullmatch(folder.name) is not None and any(folder.glob("*.log"))


def _other_stores(log_dir: Path, own: Path) -> Iterator[Path]:
    for place in (log_dir.parent / _META_NAME, log_dir.with_name(f"{log_dir.name}-meta")):
        if place != own and (place / _STORE_NAME).is_file():
            yield place


def _belongs_to(log_dir: Path, other: Path, own: Path) -> bool:
    """Whether the directory was used with the other store.

    Only the cluster's id proves it: brokers may lie side by side. A store beside an older one of
    our own is ignored without proof, or outside a data directory.
    """
    cluster_id = _cluster_of_logs(log_dir)
    if cluster_id is None:
        return False  # nobody has used it
    owner = _cluster_of_store(other / _STORE_NAME)
    if not (own / _STORE_NAME).is_file():
        return owner in (None, cluster_id)
    return other.name == _META_NAME and owner == cluster_id


def _cluster_of_logs(log_dir: Path) -> str | None:
    try:
        text = (log_dir / META_PROPERTIES).read_text(encoding="utf-8", errors="replace")
        return next((one.value for one in parse_properties(text) if one.key == "cluster.id"), None)
    except (OSError, PropertiesError):
        return None


def _is_store(file: Path) -> bool:
    """Whether it is a metadata store by its first bytes, also while a broker uses it."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_SQLITE_HEADER)
    except OSError:
        return False
    from pyrklog.metastore.database import APPLICATION_ID

    return int.from_bytes(head[_APPLICATION_ID], "big") == APPLICATION_ID


def _cluster_of_store(file: Path) -> str | None:
    """None where the store does not tell, for instance because a broker uses it."""
    import sqlite3

    from pyrklog.metastore import znodes

    try:
        # Immutable: makes neither a lock nor a file beside it.
        store = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            row = store.execute(
                "SELECT data FROM node WHERE path = ?", (znodes.CLUSTER_ID,)
            ).fetchone()
        finally:
            store.close()
        return None if row is None else znodes.decode_cluster_id(row[0])
    except (sqlite3.Error, znodes.ZnodeError):
        return None


def _two_stores(log_dir: Path, other: Path, own: Path) -> ConfigError:
    if other.name == _META_NAME:
        used = f"--data {other.parent}"
        what = f"{log_dir} is a log directory of the data directory {other.parent}"
    else:
        used = f"pyrklog.meta.dir={other}"
        what = f"{log_dir} is a log directory whose metadata is in {other}"
    if (own / _STORE_NAME).is_file():
        why = f"there is a second metadata store at {own}, and each knows only its own topics"
    else:
        why = f"a second metadata store at {own} would know none of its topics"
    return ConfigError(
        Problem.DIRECTORIES_MISPLACED,
        what,
        why=why,
        fix=f"start with {used}, or name the metadata store that counts with pyrklog.meta.dir",
    )
