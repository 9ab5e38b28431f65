"""What a bundle has: findings, health, options, metrics, logs, versions. It has no record and no
secret."""

from __future__ import annotations

import http.client
import os
import platform
import resource
import stat
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyrklog.cli.doctor.archive import PIECE_BYTES_MAX, Pieces, written
from pyrklog.cli.doctor.checks import Check
from pyrklog.cli.doctor.evidence import BrokerEvidence, Evidence
from pyrklog.cli.failures import counted
from pyrklog.cli.options import Settings
from pyrklog.observability.health_rules import BrokerState, examine, health_item
from pyrklog.observability.health_signs import size
from pyrklog.redaction import Kind, Redactor

SCHEMA = "pyrklog.bundle/1"
HTTP_TIMEOUT_S = 5.0
TOPICS_MAX = 1_000
"""Of a log directory, the largest ones."""
_SHOWN_VARIABLES = ("PYRKLOG_", "KAFKA_", "JAVA_", "ZOO", "LC_")
_SHOWN_ALSO = frozenset({"LANG", "TZ", "PATH", "HOME", "SHELL", "NO_COLOR", "TERM"})
_KINDS = {
    ".json": Kind.JSON,
    ".toml": Kind.TOML,
    ".properties": Kind.PROPERTIES,
    ".log": Kind.LOG,
    ".jsonl": Kind.LOG,
    ".out": Kind.LOG,
    ".txt": Kind.LOG,
}
_OF_RUST = {0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 18: "ApiVersions"}


def write_bundle(
    file: str,
    settings: Settings,
    evidence: Evidence,
    checks: Sequence[Check],
    config: str | None,
    include: Sequence[str],
) -> list[str]:
    """Notes for people: what was written, and what was left out. Raises :class:`CliError`."""
    redactor = redactor_of(settings, os.environ)
    pieces = Pieces()
    checked = [one.item() for one in checks]
    pieces.add_json("doctor.json", checked, "the checks", is_by_others=True)
    _add_cluster(pieces, evidence)
    pieces.add_json("versions.json", versions(evidence), "programs and brokers")
    pieces.add_json("machine.json", machine(evidence, os.environ), "this machine")
    pieces.add_json("connection.json", _connection(settings), "the command line and profile")
    if config is not None:
        _add_config(pieces, Path(config))
    for broker in evidence.state.brokers if evidence.state is not None else ():
        _add_of_broker(pieces, broker, evidence)
    _add_logs(pieces, evidence)
    for one in include:
        path = Path(one)
        pieces.add_file(f"include/{path.name}", path, kind_of(path))
    about = {"schema": SCHEMA, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    bytes_ = written(Path(file), pieces, redactor, about)
    told = (
        f"{file}: {counted(len(pieces.found), 'file')}, {size(bytes_)}; secrets are removed, but "
    )
    notes = [f"{told}look through it before you send it", *pieces.left_out]
    if redactor.is_full:
        notes.append(
            f"more secrets were found than the {redactor.count} that are remembered: the others "
            "are hidden where their names or forms tell them, and may stay elsewhere"
        )
    return notes


def _add_config(pieces: Pieces, path: Path) -> None:
    """As properties, of which it is known what is a secret."""
    from pyrklog.config.convert import to_properties
    from pyrklog.config.properties import PropertiesError
    from pyrklog.config.toml_file import is_toml

    if not is_toml(path):
        pieces.add_file("server.properties", path, Kind.OPTIONS)
        return
    try:
        text = to_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, PropertiesError) as error:
        pieces.left_out.append(f"{path}: {getattr(error, 'strerror', None) or 'no TOML'}")
        return
    pieces.add("server.properties", text, Kind.OPTIONS, str(path))


def redactor_of(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    """Knows the secrets of the command line, of the profile and of all variables already."""
    from pyrklog.config.properties import PropertiesError, parse_properties

    def parse(text: str) -> list[tuple[str, str]]:
        try:
            return [(one.key, one.value) for one in parse_properties(text)]
        except PropertiesError as error:
            raise ValueError(str(error)) from None

    redactor = Redactor(is_known_to_be_none, parse)
    for name, value in (*settings.properties.items(), *environ.items()):
        redactor.of_name(name, value)
    return redactor


def is_known_to_be_none(name: str) -> bool:
    """Whether it is an option of Kafka's or ours whose value is no secret."""
    from pyrklog.cli.config_effect import broker_option
    from pyrklog.config.kafka_only import KAFKA_ONLY
    from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

    known = broker_option(name) or KAFKA_ONLY.get(name)
    return name in TOPIC_OPTIONS_BY_NAME or (known is not None and not known.is_secret)


def kind_of(path: Path) -> Kind:
    if path.name == "server.properties":
        return Kind.OPTIONS
    if ".log" in path.suffixes:  # server.log.1
        return Kind.LOG
    return _KINDS.get(path.suffix, Kind.TEXT)


# --- the cluster ---------------------------------------------------------------------------------


def _add_cluster(pieces: Pieces, evidence: Evidence) -> None:
    import msgspec

    if evidence.state is not None:
        told = health_item(evidence.state, examine(evidence.state))
        brokers = [vars(one) for one in evidence.state.brokers]
        found = {"cluster_id": evidence.state.cluster_id, **told, "registered": brokers}
        pieces.add_json("health.json", found, "the cluster's health", is_by_others=True)
    healths = {
        number: msgspec.to_builtins(one.response) for number, one in evidence.healths.items()
    }
    if healths:
        origin = "each broker about itself"
        pieces.add_json("broker-health.json", healths, origin, is_by_others=True)
    if evidence.zookeepers:
        found = {"servers": [vars(one) for one in evidence.zookeepers]}
        pieces.add_json("zookeeper.json", found, "ZooKeeper", is_by_others=True)


def _add_of_broker(pieces: Pieces, broker: BrokerState, evidence: Evidence) -> None:
    found = evidence.brokers.get(broker.number)
    if found is None:
        return
    folder = f"broker-{broker.number}"
    origin = f"broker {broker.number} at {broker.address}"
    if found.options is not None:
        pieces.add_json(f"{folder}/options.json", found.options, f"{origin}: options")
    if found.log_dirs is not None:
        told = _log_dirs(found)
        origin_of_dirs = f"{origin}: log directories"
        pieces.add_json(f"{folder}/log-dirs.json", told, origin_of_dirs, is_by_others=True)
    place = _http_place(broker, found)
    if place is None:
        pieces.left_out.append(f"{origin}: metrics, which it serves nowhere or out of reach")
    else:
        _add_metrics(pieces, f"{folder}/metrics.txt", place)
    if found.health is not None:
        _add_state_changes(pieces, f"{folder}/state-change.jsonl", broker, origin)


def _log_dirs(found: BrokerEvidence) -> list[dict[str, Any]]:
    told = []
    for place in found.log_dirs or ():
        sizes = {
            topic.name: [one.partition_size for one in topic.partitions] for topic in place.topics
        }
        largest = sorted(sizes, key=lambda name: -sum(sizes[name]))[:TOPICS_MAX]
        told.append(
            {
                "path": place.log_dir,
                "error": place.error_code,
                "total_bytes": place.total_bytes,
                "usable_bytes": place.usable_bytes,
                "topics": [
                    {"topic": name, "partitions": len(sizes[name]), "bytes": sum(sizes[name])}
                    for name in largest
                ],
                "topics_left_out": len(sizes) - len(largest),
            }
        )
    return told


def _http_place(broker: BrokerState, found: BrokerEvidence) -> tuple[str, int] | None:
    """Where a broker of ours serves metrics, as far as this machine may reach it: a broker's
    options do not send us to other hosts than its own."""
    from pyrklog.config.http_place import ABOVE_KAFKA, LOOPBACK, NAME, OFF, parse_address

    if found.health is None or found.options is None:
        return None
    given = (found.options.get(NAME) or "").strip()
    if given.lower() == OFF:
        return None
    place = parse_address(given) if given else (LOOPBACK, broker.port + ABOVE_KAFKA)
    if place is None or not place[1]:
        return None
    is_loopback = place[0].startswith("127.") or place[0] in ("localhost", "::1")
    if is_loopback:
        return (place[0], place[1]) if found.is_local else None
    return broker.host, place[1]


def _add_metrics(pieces: Pieces, name: str, place: tuple[str, int]) -> None:
    host, port = place
    origin = f"http://{host}:{port}/metrics"
    connection = http.client.HTTPConnection(host, port, timeout=HTTP_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        content = answer.read(PIECE_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        pieces.left_out.append(f"{origin}: {error}")
        return
    finally:
        connection.close()
    if answer.status != http.client.OK:
        pieces.left_out.append(f"{origin}: HTTP status {answer.status}")
        return
    pieces.add(name, content, Kind.LOG, origin)


def _add_state_changes(pieces: Pieces, name: str, broker: BrokerState, origin: str) -> None:
    from pyrklog.cli.broker_connection import BrokerConnection
    from pyrklog.cli.state_change_logs import log_of

    try:
        with BrokerConnection((broker.host, broker.port), HTTP_TIMEOUT_S) as connection:
            content = log_of(connection).decode(errors="replace")
    except (OSError, UnicodeError) as error:
        pieces.left_out.append(f"{origin}: state-change log: {error}")
        return
    if content:
        pieces.add(name, content, Kind.LOG, f"{origin}: state-change log")


def versions(evidence: Evidence) -> dict[str, Any]:
    from confluent_kafka import libversion
    from confluent_kafka import version as client_version

    from pyrklog import __version__
    from pyrklog.protocol.registry import ROWS, find_api

    names = {**_OF_RUST, **{key: find_api(key).name for key in ROWS}}
    return {
        "pyrklog": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "confluent_kafka": client_version(),
        "librdkafka": libversion()[0],
        "brokers": {
            number: {
                "pyrklog": None if one.health is None else one.health.response.version,
                "apis": {
                    names.get(key, str(key)): span for key, span in (one.versions or {}).items()
                },
            }
            for number, one in evidence.brokers.items()
        },
    }


# --- this machine --------------------------------------------------------------------------------


def machine(evidence: Evidence, environ: Mapping[str, str]) -> dict[str, Any]:
    """Of other variables than Kafka's and ours only the names."""
    shown = {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(_SHOWN_VARIABLES) or name in _SHOWN_ALSO
    }
    return {
        "uname": list(platform.uname()),
        "cpus": os.cpu_count(),
        "memory": _first_lines(Path("/proc/meminfo"), 5),
        "pressure": _first_lines(Path("/proc/pressure/io"), 2),
        "files_limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "log_dirs": [{**vars(one), "path": str(one.path)} for one in evidence.dirs],
        "processes": [{**vars(one), "command": _command(one.pid)} for one in evidence.processes],
        "environment": shown,
        "other_variables": sorted(set(environ) - set(shown)),
    }


def _first_lines(path: Path, count: int) -> list[str]:
    try:
        return path.read_text().splitlines()[:count]
    except OSError:
        return []


def _command(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode(errors="replace") for word in words if word]


def _connection(settings: Settings) -> dict[str, Any]:
    profile = settings.profile
    return {
        "bootstrap": settings.bootstrap,
        "properties": settings.properties,
        "timeout_s": settings.timeout_s,
        "profile": None if profile is None else profile.name,
        "command": sys.argv,
    }


def _add_logs(pieces: Pieces, evidence: Evidence) -> None:
    """What brokers of this machine write: into files to which their output goes, and those of
    `pyrklog dev`."""
    seen: set[Path] = set()
    for name, path, kind in [*_outputs(evidence), *_dev_files(evidence)]:
        if path not in seen:
            seen.add(path)
            pieces.add_file(name, path, kind)


def _outputs(evidence: Evidence) -> list[tuple[str, Path, Kind]]:
    found = []
    for one in evidence.processes:
        for number, stream in ((1, "stdout"), (2, "stderr")):
            try:
                path = Path(os.readlink(f"/proc/{one.pid}/fd/{number}"))
                is_file = stat.S_ISREG(path.stat().st_mode)
            except OSError:
                continue  # another user's process, or no file
            if is_file:
                who = f"pid-{one.pid}" if one.broker is None else f"broker-{one.broker}"
                found.append((f"{who}/{stream}.log", path, Kind.LOG))
    return found


def _dev_files(evidence: Evidence) -> list[tuple[str, Path, Kind]]:
    """Of the clusters of `pyrklog dev` with one of these brokers."""
    from pyrklog.dev.errors import DevError
    from pyrklog.dev.state import STATE_FILE, Place, dev_root

    state = evidence.state
    if state is None:
        return []
    addresses = {one.address for one in state.brokers}
    found: list[tuple[str, Path, Kind]] = []
    root = dev_root(os.environ)
    for file in sorted(root.glob(f"*/{STATE_FILE}")):
        try:
            place = Place(root, file.parent.name)
            cluster = place.load()
        except DevError:
            continue
        if addresses.isdisjoint(map(cluster.address_of, cluster.brokers)):
            continue
        for node in cluster.nodes:
            folder = f"dev-{cluster.name}/{node.name}"
            found.append((f"{folder}/log.log", place.log_of(cluster, node), Kind.LOG))
            options = place.node_folder(cluster, node) / "server.properties"
            if options.is_file():
                found.append((f"{folder}/server.properties", options, Kind.OPTIONS))
    return found
