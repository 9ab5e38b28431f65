"""Reads options: --set, other flags, the environment, the file, the defaults, in this order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from pyrklog.base.problems import Problem
from pyrklog.config.broker import (
    ON_COMMAND_LINE,
    OPTIONS,
    BrokerConfig,
    Given,
    wrong_with_value,
)
from pyrklog.config.cleaner import wrong_with_cleaner, wrong_with_compaction_lag
from pyrklog.config.connection_quotas import wrong_with_connections
from pyrklog.config.dynamic import listener_option
from pyrklog.config.listeners import (
    DEFAULT_INTER_BROKER,
    INTER_BROKER_NAME,
    INTER_BROKER_PROTOCOL,
    Listeners,
)
from pyrklog.config.log_options import RETENTION_ZERO
from pyrklog.config.places import check_places
from pyrklog.config.properties import PropertiesError, Property, parse_properties
from pyrklog.config.providers import PROVIDERS, is_definition, resolve_variables
from pyrklog.config.zookeeper_connect import parse_connect
from pyrklog.errors import ConfigError

ENVIRONMENT_PREFIX = "PYRKLOG_"
REFUSED_OPTIONS = {
    "authorizer.class.name": "access control lists are not served yet, and a broker that ignored "
    "them would be open to everyone",
}
"""Kafka's options with which a broker does not start, and why."""

LIKE, MISSPELT = 0.7, 0.85
"""Likeness of two names: one is worth a hint; one is hardly a plug-in's own setting."""
_OF_KAFKAS_FILE = frozenset({"process.roles", "zookeeper.connect"})
"""Kafka starts with one of these in its file only."""
FLAGS = {
    "pyrklog.data.dir": "--data",
    "listeners": "--listen",
    "pyrklog.http.listener": "--http",
    "zookeeper.connect": "--zookeeper",
    "broker.id": "--broker-id",
    "pyrklog.adopt.zookeeper": "--adopt-zookeeper",
    "pyrklog.cache.keep": "--tmp",
    "pyrklog.cache.drop": "--drop-cache",
}
"""Options that flags of ``serve`` set, and these: the origins of their values."""
LISTENER_NAMES = ("listeners", "advertised.listeners")
OF_LISTENERS = (
    *LISTENER_NAMES,
    "listener.security.protocol.map",
    INTER_BROKER_NAME,
    INTER_BROKER_PROTOCOL,
)
OF_COMMANDS = ("PYRKLOG_BOOTSTRAP", "PYRKLOG_CONFIG", "PYRKLOG_PROFILE", "PYRKLOG_TRACEBACK")


def load_config(
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """The broker's options.

    ``overrides`` are ``KEY=VALUE`` texts of ``--set``, ``flags`` the options set by other flags
    (:data:`FLAGS`).
    Raises :class:`ConfigError`.
    """
    given: dict[str, Given] = {}
    refused: dict[str, Given] = {}
    unknown: dict[str, Given] = {}
    notices: list[str] = []

    in_file = _from_file(file, notices) if file is not None else []
    in_environment = _from_environment(environ or {}, notices)
    of_flags = [
        (name, Given(text, FLAGS.get(name, "flag"))) for name, text in (flags or {}).items()
    ]
    found = [*in_file, *in_environment, *of_flags, *_from_overrides(overrides)]
    _take(given, refused, unknown, notices, resolve_variables(found, environ or {}))
    has_kafka_file = any(name in _OF_KAFKAS_FILE for name, _ in in_file)
    _check_refused(refused)
    kept = _refuse_unknown(unknown, has_kafka_file=has_kafka_file)
    given |= kept
    notices += (_of_a_plug_in(name, value) for name, value in kept.items())
    config = BrokerConfig(given, notices=notices, has_kafka_file=has_kafka_file)
    _check_together(config)
    return config


def _take(
    given: dict[str, Given],
    refused: dict[str, Given],
    unknown: dict[str, Given],
    notices: list[str],
    found: Iterable[tuple[str, Given]],
) -> None:
    for name, value in found:
        option = OPTIONS.get(name) or listener_option(name)
        if option is not None:
            given[name] = value
            if not option.effective:
                notices.append(_without_effect(name, value))
            continue
        if name in REFUSED_OPTIONS:
            refused[name] = value
            continue
        notice = _notice_about(name, value)
        if notice is None:
            unknown[name] = value
            continue
        notices.append(notice)
        given[name] = value


def _check_refused(given: Mapping[str, Given]) -> None:
    """Only values in force count: an empty ``--set`` cancels the file's value."""
    for name, value in given.items():
        if value.text.strip():
            raise ConfigError(
                Problem.OPTION_NOT_SERVED,
                f"{name} ({value.origin}) is refused.",
                why=REFUSED_OPTIONS[name],
                fix=f"where everyone who can connect may do everything, {_removal(value)}, or "
                f"give --set {name}= (empty)",
            )


def _refuse_unknown(unknown: Mapping[str, Given], *, has_kafka_file: bool) -> Mapping[str, Given]:
    """Refuses the first; what is refused for a better reason comes before. Returns those that are
    kept: Kafka's file has the settings of its plug-ins, too."""
    kept = {}
    for name, value in unknown.items():
        if has_kafka_file and value.origin != ON_COMMAND_LINE and not _like(name, MISSPELT):
            kept[name] = value
            continue
        fix = f"correct the name, or {_removal(value)}"
        hint = _hint(name) or "."
        raise ConfigError(
            Problem.OPTION_UNKNOWN, f"Unknown option {name} ({value.origin}){hint}", fix=fix
        )
    return kept


def verdict_on(name: str, value: Given, given: Mapping[str, Given]) -> ConfigError | None:
    """Why a broker does not start with this option of a file that has ``given``, whatever its
    value; None if it does."""
    has_kafka_file = any(one in _OF_KAFKAS_FILE for one in given)
    refused: dict[str, Given] = {}
    unknown: dict[str, Given] = {}
    _take({}, refused, unknown, [], [(name, value)])
    unknown = {one: text for one, text in unknown.items() if one != PROVIDERS}
    try:
        _check_refused(refused)
        _refuse_unknown(unknown, has_kafka_file=has_kafka_file)
    except ConfigError as error:
        return error
    return None


def wrong_options(
    file: Path, environ: Mapping[str, str], without: Collection[str]
) -> list[tuple[str, ConfigError]]:
    """All that is wrong with the values of a file's options, of which :func:`load_config` tells the
    first: the option and why, "" for what is wrong with several together.

    ``without`` are options that are refused whatever their value.
    """
    notices: list[str] = []
    given: dict[str, Given] = {}
    try:
        found = resolve_variables(_from_file(file, notices), environ)
    except ConfigError as error:
        return [("", error)]
    found = [(name, value) for name, value in found if name not in without]
    _take(given, {}, {}, notices, found)
    wrong: dict[str, ConfigError] = {}
    for name, value in given.items():
        if OPTIONS.get(name) or listener_option(name):
            refusal = wrong_with_value(name, value)
            if refusal is not None:
                wrong[name] = refusal
    has_kafka_file = any(name in _OF_KAFKAS_FILE for name, _ in found)
    left = {name: value for name, value in given.items() if name not in wrong}
    config = BrokerConfig(left, notices=notices, has_kafka_file=has_kafka_file)
    together = []
    for check in _TOGETHER:
        try:
            check(config)
        except ConfigError as error:
            # It was compared with the default of an option whose value is to be corrected first.
            if not any(_names(error.what, name) for name in wrong):
                together.append(("", error))
    return [*wrong.items(), *together]


def _of_a_plug_in(name: str, value: Given) -> str:
    what = f"{name} ({value.origin}) is unknown, as the settings of Kafka's plug-ins are; ignored"
    return what + _hint(name)


def _hint(name: str) -> str:
    near = _like(name, LIKE)
    return f"; did you mean {near}?" if near else ""


def _like(name: str, likeness: float) -> str | None:
    from pyrklog.config.known import WITHOUT_EFFECT

    return nearest(name, [*OPTIONS, *WITHOUT_EFFECT], likeness)


def _removal(value: Given) -> str:
    if " line " in value.origin:
        return "remove the line"
    return f"leave {'' if value.origin.startswith('--') else 'the '}{value.origin} out"


def _notice_about(name: str, value: Given) -> str | None:
    """None for an unknown name."""
    from pyrklog.config.known import JVM_ONLY, PREFIXES, WITHOUT_EFFECT

    if name in _OF_KAFKAS_FILE and " line " in value.origin:
        return (
            f"{name} ({value.origin}) marks the file as Kafka's, whose defaults are then known; "
            "metadata is embedded, without KRaft"
        )
    if name in JVM_ONLY:
        return f"{name} ({value.origin}) concerns the Java virtual machine only; ignored"
    if name in WITHOUT_EFFECT or name.startswith(PREFIXES):
        return _without_effect(name, value)
    if is_definition(name):
        return (
            f"{name} ({value.origin}) is of a provider that {PROVIDERS} does not name with its "
            "class; ignored"
        )
    return None


def _without_effect(name: str, value: Given) -> str:
    return f"{name} ({value.origin}) has no effect in this version; ignored"


def nearest(name: str, names: Sequence[str], likeness: float = LIKE) -> str | None:
    from difflib import get_close_matches

    found = get_close_matches(name, names, n=1, cutoff=likeness)
    return found[0] if found else None


def _from_file(path: Path, notices: list[str]) -> list[tuple[str, Given]]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(Problem.OPTIONS_FILE, f"Cannot read {path}: {error.strerror}.") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    try:
        properties = _parse(path, text)
    except PropertiesError as error:
        raise ConfigError(Problem.OPTIONS_FILE, f"{path}: {error}.") from None
    seen: dict[str, int] = {}
    found = []
    for item in properties:
        if item.key in seen:
            notices.append(
                f"{path.name} gives {item.key} in line {seen[item.key]} and again in line "
                f"{item.line}; the last one counts"
            )
        seen[item.key] = item.line
        found.append((item.key, Given(item.value, f"{path.name} line {item.line}")))
    return found


def _parse(path: Path, text: str) -> list[Property]:
    if path.suffix.lower() != ".toml":
        return parse_properties(text)
    from pyrklog.config.toml_file import parse_toml

    return parse_toml(text)


def environment_name(name: str) -> str:
    """``PYRKLOG_`` and the option's name in capitals, dots as underscores, "pyrklog." left out."""
    short = name.removeprefix("pyrklog.")
    return ENVIRONMENT_PREFIX + short.replace(".", "_").upper()


def _from_environment(environ: Mapping[str, str], notices: list[str]) -> list[tuple[str, Given]]:
    relevant = {key: text for key, text in environ.items() if key.startswith(ENVIRONMENT_PREFIX)}
    if not relevant:
        return []
    names = {environment_name(name): name for name in OPTIONS}
    # Other programs of ours may use the prefix, so an unknown one is not an error.
    notices += unknown_variables(relevant)
    return [
        (names[key], Given(text, f"environment {key}"))
        for key, text in sorted(relevant.items())
        if key in names
    ]


def unknown_variables(environ: Iterable[str]) -> list[str]:
    """Notices about variables with our prefix that are neither options nor a command's."""
    known = [*map(environment_name, OPTIONS), *OF_COMMANDS]
    told = []
    for key in sorted(environ):
        if not key.startswith(ENVIRONMENT_PREFIX) or key in known:
            continue
        near = nearest(key, known)
        hint = f"; did you mean {near}?" if near else ""
        told.append(f"the environment variable {key} names no option; ignored{hint}")
    return told


def _from_overrides(overrides: Sequence[str]) -> list[tuple[str, Given]]:
    found = []
    for item in overrides:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(Problem.OPTION_VALUE, f"--set takes KEY=VALUE, not {item!r}.")
        found.append((name.strip(), Given(text, ON_COMMAND_LINE)))
    return found


def _check_together(config: BrokerConfig) -> None:
    """Checks options against one another."""
    for check in _TOGETHER:
        check(config)


def _check_numbers_of_broker(config: BrokerConfig) -> None:
    _ = config.configured_node_id


def _check_reports(config: BrokerConfig) -> None:
    _ = config.reports


def _check_adoption(config: BrokerConfig) -> None:
    if config.zookeeper is not None and config.string("pyrklog.adopt.zookeeper") is not None:
        raise ConfigError(
            Problem.OPTIONS_DISAGREE,
            "pyrklog.adopt.zookeeper is for a broker that is alone; zookeeper.connect is set.",
            fix="adopt with zookeeper.connect= (empty)",
        )


def _check_zookeeper_acls(config: BrokerConfig) -> None:
    if config.boolean("zookeeper.set.acl") and not _is_known_to_zookeeper(config):
        raise ConfigError(
            Problem.OPTIONS_DISAGREE,
            "zookeeper.set.acl needs something by which ZooKeeper knows this broker.",
            fix="set pyrklog.zookeeper.digest, or zookeeper.ssl.client.enable with "
            "zookeeper.ssl.keystore.location",
        )


def _raising(wrong_with: Callable[[BrokerConfig], str | None]) -> Callable[[BrokerConfig], None]:
    def check(config: BrokerConfig) -> None:
        wrong = wrong_with(config)
        if wrong is not None:
            raise ConfigError(Problem.OPTIONS_DISAGREE, wrong)

    return check


def _check_connects(config: BrokerConfig) -> None:
    for option in ("zookeeper.connect", "pyrklog.adopt.zookeeper"):
        connect = config.string(option)
        if connect is not None:
            parse_connect(connect, option)


def _check_listeners(config: BrokerConfig) -> None:
    """Also notes what they leave open."""
    listeners = _listeners(config)
    if listeners.is_inter_broker_a_guess:
        config.notices.append(
            f"no advertised listener is called {DEFAULT_INTER_BROKER}: other brokers use "
            f"{listeners.inter_broker}, the first one, and Kafka would not start; set "
            f"{INTER_BROKER_NAME}"
        )
    kept = _kept_advertised(config)
    if kept is not None:
        config.notices.append(kept)
    left_out = listeners.left_out
    if left_out:
        names = ", ".join(left_out)
        config.notices.append(
            f"the controller listener {names} is left out: metadata is embedded, without KRaft"
        )


def _listeners(config: BrokerConfig) -> Listeners:
    """Their errors name where the options come from."""
    try:
        return config.listeners
    except ConfigError as error:
        named = [name for name in OF_LISTENERS if _names(error.what, name)] or ["listeners"]
        given = [f"{name}: {config.given[name].origin}" for name in named if name in config.given]
        if not given:
            raise
        what = f"{error.what.rstrip('.')} ({', '.join(given)})."
        raise ConfigError(error.problem, what, why=error.why, fix=error.fix) from None


def _names(text: str, option: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(option)}(?![\w.]\w)", text) is not None


def _kept_advertised(config: BrokerConfig) -> str | None:
    """A note about listeners of the command line beside advertised addresses of a file."""
    listeners, advertised = (config.given.get(name) for name in LISTENER_NAMES)
    if listeners is None or advertised is None or not advertised.text.strip():
        return None
    found = config.listeners
    if " line " in listeners.origin or " line " not in advertised.origin:
        return None
    if found.advertised == found.bound:
        return None
    flag = FLAGS["listeners"]
    option = flag if listeners.origin == flag else f"listeners ({listeners.origin})"
    told = ", ".join(map(str, found.advertised))
    return (
        f"advertised.listeners ({advertised.origin}) holds beside {option}: clients are told "
        f"{told}; give --set advertised.listeners= (empty) to tell them the new address"
    )


def _check_retention(config: BrokerConfig) -> None:
    """The first given one counts; hours have a default."""
    names = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    name = next(name for name in names if config.value(name) is not None)
    if config.value(name) == 0:
        raise ConfigError(
            Problem.OPTION_VALUE, f"{name} ({config.given[name].origin}) {RETENTION_ZERO}."
        )


def _check_replica_waits(config: BrokerConfig) -> None:
    """As Kafka: a follower that waits longer would leave the in-sync replicas."""
    wait, lag = "replica.fetch.wait.max.ms", "replica.lag.time.max.ms"
    if config.integer(wait) > config.integer(lag):
        raise ConfigError(
            Problem.OPTIONS_DISAGREE,
            f"{wait} ({config.integer(wait)}) is more than {lag} ({config.integer(lag)}).",
            fix=f"set {wait} to less, or {lag} to more",
        )


def _is_known_to_zookeeper(config: BrokerConfig) -> bool:
    if config.string("pyrklog.zookeeper.digest") is not None:
        return True
    certificate = config.string("zookeeper.ssl.keystore.location")
    return config.boolean("zookeeper.ssl.client.enable") and certificate is not None


_TOGETHER: Sequence[Callable[[BrokerConfig], None]] = (
    _check_numbers_of_broker,
    _check_reports,
    _check_adoption,
    _check_zookeeper_acls,
    _raising(wrong_with_connections),
    _raising(wrong_with_cleaner),
    _raising(wrong_with_compaction_lag),
    _check_retention,
    _check_replica_waits,
    _check_connects,
    check_places,
    _check_listeners,
)
"""The checks of options against one another; each raises ConfigError."""
