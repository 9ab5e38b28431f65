"""Names of a cluster's topics and groups for completion: within 300 ms, and remembered for 30 s.

A shell waits for the answer. So a cluster that is away, or late, has no names, and nothing is said.
"""

import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyrklog.cli.completing import Kind
from pyrklog.cli.options import Settings

LIMIT_S = 0.3
"""How long the cluster may take, from the question on."""
KEPT_S = 30.0
FILE_BYTES_MAX = 8 * 2**20
NAMES_MAX = 20_000
_CONNECTIONS_AT_ONCE_MAX = 16


def cached_names(
    kind: Kind,
    settings: Settings,
    environ: Mapping[str, str],
    ask: Callable[[Kind, Settings], list[str]] | None = None,
    now_s: Callable[[], float] = time.time,
) -> list[str]:
    """Names of the settings' cluster, at most :data:`KEPT_S` old; none if they cannot be had."""
    path = _cache_path(kind, settings, environ)
    found = None if path is None else _remembered(path, now_s())
    if found is None:
        found = within(LIMIT_S, lambda: (ask or ask_cluster)(kind, settings))
        if found is None:
            return []
        if path is not None:
            _remember(path, found, now_s())
    return found


def within(limit_s: float, ask: Callable[[], list[str]]) -> list[str] | None:
    """The answer, unless it takes longer or fails."""
    answers: list[list[str]] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception:  # whatever it is, there is nothing to propose
            answers.clear()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    return answers[0] if answers else None


def ask_cluster(kind: Kind, settings: Settings) -> list[str]:
    """Raises anything."""
    if settings.security_protocol == "plaintext":
        return _ask_plainly(kind, settings)
    from confluent_kafka.admin import AdminClient

    from pyrklog.cli.connection import quiet_logger

    admin = AdminClient(
        {
            **settings.properties,
            "bootstrap.servers": settings.bootstrap,
            "logger": quiet_logger(),
        }
    )
    if kind is Kind.TOPICS:
        return sorted(admin.list_topics(timeout=LIMIT_S).topics)
    groups = admin.list_consumer_groups(request_timeout=LIMIT_S).result()
    return sorted(one.group_id for one in groups.valid)


def _ask_plainly(kind: Kind, settings: Settings) -> list[str]:
    from pyrklog.cli.bootstrap import addresses
    from pyrklog.cli.broker_connection import BrokerConnection
    from pyrklog.protocol.metadata import METADATA, MetadataRequest

    version = METADATA.versions[0]
    request = MetadataRequest(topics=None if kind is Kind.TOPICS else [])
    failure: OSError | None = None
    for address in addresses(settings.bootstrap):
        try:
            with BrokerConnection(address, LIMIT_S) as connection:
                metadata = connection.ask(METADATA, version, request)
        except OSError as error:
            failure = error
            continue
        if kind is Kind.TOPICS:
            return sorted(one.name for one in metadata.topics)
        return _groups([(one.host, one.port) for one in metadata.brokers])
    raise failure or OSError("no address")


def _groups(brokers: list[tuple[str, int]]) -> list[str]:
    """Of all coordinators that answer."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(len(brokers), _CONNECTIONS_AT_ONCE_MAX) or 1) as pool:
        found = pool.map(_groups_of, brokers)
    return sorted({name for names in found for name in names})


def _groups_of(address: tuple[str, int]) -> list[str]:
    from pyrklog.cli.broker_connection import BrokerConnection
    from pyrklog.protocol.group_admin import LIST_GROUPS, ListGroupsRequest

    try:
        with BrokerConnection(address, LIMIT_S) as connection:
            answer = connection.ask(LIST_GROUPS, 0, ListGroupsRequest())
    except OSError:
        return []
    return [one.group_id for one in answer.groups]


def _cache_path(kind: Kind, settings: Settings, environ: Mapping[str, str]) -> Path | None:
    """Of this cluster as this user sees it; passwords are no part of the name."""
    home = environ.get("XDG_CACHE_HOME")
    if not home or not os.path.isabs(home):
        home = os.path.expanduser("~/.cache")
        if not os.path.isabs(home):
            return None
    seen_as = [settings.bootstrap, settings.security_protocol]
    seen_as += [settings.properties.get(key, "") for key in ("sasl.username", "client.id")]
    digest = hashlib.sha256(json.dumps([kind.name, *seen_as]).encode()).hexdigest()[:32]
    return Path(home, "pyrklog", "completion", f"{digest}.json")


def _remembered(path: Path, now_s: float) -> list[str] | None:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        found = json.loads(content)
        at_s, names = found["at_s"], found["names"]
        is_fresh = 0 <= now_s - at_s <= KEPT_S
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if not is_fresh or not isinstance(names, list):
        return None
    return [one for one in names if isinstance(one, str)]


def _remember(path: Path, names: list[str], now_s: float) -> None:
    """Does without where there is no place: the names are asked for again then."""
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(number, "w") as file:
            json.dump({"at_s": now_s, "names": names[:NAMES_MAX]}, file)
        os.replace(temporary, path)
        _forget_old(path.parent, now_s)
    except OSError:
        return


def _forget_old(folder: Path, now_s: float) -> None:
    """Files of clusters that nobody has asked for a day."""
    for one in folder.iterdir():
        if now_s - one.stat().st_mtime > 86_400:
            one.unlink(missing_ok=True)
