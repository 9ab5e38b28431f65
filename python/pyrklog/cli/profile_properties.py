"""Client properties of Java and of librdkafka as librdkafka's properties of a profile.

Names that mean nothing here are returned, to be told.
"""

import re
from collections.abc import Callable
from pathlib import Path

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError

Taken = tuple[tuple[str, ...], dict[str, str], tuple[str, ...]]
"""Brokers, properties, names that were passed over."""

_SAME_IN_JAVA = frozenset(
    {
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "ssl.key.password",
    }
)
"""Java's names that are librdkafka's, with the same meaning. ``ssl.cipher.suites`` names ciphers
otherwise there, and an endpoint for tokens does nothing without librdkafka's own properties."""
_OF_COMMANDS = frozenset(
    {"auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "group.id"}
)
"""librdkafka's properties that commands set themselves."""
_BROKERS = ("bootstrap.servers", "metadata.broker.list")
_UNKNOWN = re.compile(r'No such configuration property: "([^"]*)"')


def of_java(path: Path, text: str) -> Taken:
    """Raises :class:`CliError`."""
    from pyrklog.config.properties import PropertiesError, parse_properties

    try:
        given = {one.key: one.value for one in parse_properties(text)}
    except PropertiesError as error:
        raise CliError(Problem.FILE_CONTENT, f"{path}, {error}") from None
    brokers = _brokers(given.pop("bootstrap.servers", ""))
    taken = {name: given.pop(name) for name in list(given) if name in _SAME_IN_JAVA and given[name]}
    for act in (_take_login, _take_truststore, _take_keystore, _take_name_check):
        act(given, taken)
    return brokers, taken, tuple(given)


def _take_login(given: dict[str, str], taken: dict[str, str]) -> None:
    """``sasl.jaas.config``; one that is not understood is left over."""
    from pyrklog.security.jaas import login

    text = given.get("sasl.jaas.config")
    if text is None:
        return
    try:
        found = login(text, taken.get("sasl.mechanism", ""))
    except ValueError:
        return
    del given["sasl.jaas.config"]
    taken |= {"sasl.username": found.username, "sasl.password": found.password}


def _take_truststore(given: dict[str, str], taken: dict[str, str]) -> None:
    if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
        return
    del given["ssl.truststore.type"]
    _move(given, "ssl.truststore.location", taken, "ssl.ca.location")
    _move(given, "ssl.truststore.certificates", taken, "ssl.ca.pem")


def _take_keystore(given: dict[str, str], taken: dict[str, str]) -> None:
    """A PKCS #12 file is one for librdkafka, too; a PEM file has certificates and key."""
    kind = given.get("ssl.keystore.type", "JKS").upper()
    if kind == "PKCS12":
        del given["ssl.keystore.type"]
        _move(given, "ssl.keystore.location", taken, "ssl.keystore.location")
        _move(given, "ssl.keystore.password", taken, "ssl.keystore.password")
    elif kind == "PEM":
        del given["ssl.keystore.type"]
        if "ssl.keystore.location" in given:
            place = given.pop("ssl.keystore.location")
            taken |= {"ssl.certificate.location": place, "ssl.key.location": place}
        _move(given, "ssl.keystore.certificate.chain", taken, "ssl.certificate.pem")
        _move(given, "ssl.keystore.key", taken, "ssl.key.pem")


def _take_name_check(given: dict[str, str], taken: dict[str, str]) -> None:
    """Empty in Java is librdkafka's ``none``."""
    name = "ssl.endpoint.identification.algorithm"
    if name in given:
        taken[name] = given.pop(name) or "none"


def _move(given: dict[str, str], name: str, taken: dict[str, str], new: str) -> None:
    if name in given:
        taken[new] = given.pop(name)


def of_librdkafka(
    path: Path, text: str, refused: Callable[[dict[str, str]], str | None] | None = None
) -> Taken:
    """Lines ``key=value``, as in ``kcat.conf``; ``#`` begins a comment. ``refused`` names a
    property that librdkafka does not know. Raises :class:`CliError`."""
    given: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip():
            raise CliError(Problem.FILE_CONTENT, f"{path}, line {number}: it must be NAME=VALUE")
        given[name.strip()] = value.strip()
    brokers: tuple[str, ...] = ()
    for name in _BROKERS:
        brokers = brokers or _brokers(given.get(name, ""))
        given.pop(name, None)
    passed_over = [name for name in given if name in _OF_COMMANDS]
    taken = {name: value for name, value in given.items() if name not in _OF_COMMANDS}
    ask = refused or _unknown_to_librdkafka
    while (unknown := ask(taken)) is not None:
        del taken[unknown]
        passed_over.append(unknown)
    return brokers, taken, tuple(passed_over)


def _unknown_to_librdkafka(properties: dict[str, str]) -> str | None:
    """The first name that it does not know. What else it refuses, as a missing file, is for the
    command that uses the profile."""
    from confluent_kafka import Consumer, KafkaException

    from pyrklog.cli.connection import quiet_logger

    try:
        Consumer({"group.id": "pyrklog", **properties, "logger": quiet_logger()}).close()
    except KafkaException as error:
        found = _UNKNOWN.search(str(error.args[0].str()))
        return found[1] if found is not None and found[1] in properties else None
    except (TypeError, ValueError):
        return None
    return None


def _brokers(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())
