"""Broker options that Kafka 3.9 changes at run time, without effect here. (Those that are defaults
of topic options are in :mod:`.log_options`.)

The table has the update modes, types and names of Kafka's ``KafkaConfig``. Such options are
accepted, kept and shown, so that tools which set them work. All other options without effect
(:mod:`.known`) are read-only in Kafka, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrklog.config.entry import OptionType
from pyrklog.config.option import CLUSTER_WIDE, PER_BROKER, Option, integer

LISTENER_PREFIX = "listener.name."
DOCUMENTATION = "Accepted and kept as Kafka does, without effect in pyrklog."

_TABLE = (
    (
        CLUSTER_WIDE,
        OptionType.INT,
        "background.threads log.cleaner.io.buffer.size remote.fetch.max.wait.ms",
    ),
    (CLUSTER_WIDE, OptionType.LIST, "metric.reporters"),
    (
        CLUSTER_WIDE,
        OptionType.LONG,
        "remote.log.index.file.cache.total.size.bytes "
        "remote.log.manager.copy.max.bytes.per.second "
        "remote.log.manager.fetch.max.bytes.per.second",
    ),
    (PER_BROKER, OptionType.CLASS, "principal.builder.class ssl.engine.factory.class"),
    (
        PER_BROKER,
        OptionType.DOUBLE,
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor "
        "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter",
    ),
    (
        PER_BROKER,
        OptionType.LIST,
        "sasl.enabled.mechanisms sasl.kerberos.principal.to.local.rules ssl.cipher.suites "
        "ssl.enabled.protocols",
    ),
    (PER_BROKER, OptionType.LONG, "sasl.kerberos.min.time.before.relogin"),
    (
        PER_BROKER,
        OptionType.PASSWORD,
        "sasl.jaas.config ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key "
        "ssl.keystore.password ssl.truststore.certificates ssl.truststore.password",
    ),
    (
        PER_BROKER,
        OptionType.SHORT,
        "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds",
    ),
    (
        PER_BROKER,
        OptionType.STRING,
        "sasl.kerberos.kinit.cmd sasl.kerberos.service.name "
        "sasl.mechanism.inter.broker.protocol ssl.client.auth "
        "ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.keystore.location "
        "ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation "
        "ssl.trustmanager.algorithm ssl.truststore.location ssl.truststore.type",
    ),
)

_LEAST = {
    "background.threads": 1,
    "log.cleaner.io.buffer.size": 0,
    "remote.fetch.max.wait.ms": 1,
    "remote.log.index.file.cache.total.size.bytes": 1,
    "remote.log.manager.copy.max.bytes.per.second": 1,
    "remote.log.manager.fetch.max.bytes.per.second": 1,
}

DYNAMIC_WITHOUT_EFFECT: Mapping[str, Option] = {
    name: Option(
        name,
        None,
        DOCUMENTATION,
        kind,
        minimum=_LEAST.get(name),
        update_mode=mode,
        effective=False,
    )
    for mode, kind, names in _TABLE
    for name in names.split()
}

OF_EACH_LISTENER: Mapping[str, Option] = {
    option.name: option._replace(update_mode=CLUSTER_WIDE)
    for option in (
        integer("max.connections", None, "Connections of this listener.", minimum=0),
        integer(
            "max.connection.creation.rate",
            None,
            "New connections a second of this listener; 0 counts as 1.",
            minimum=0,
        ),
        integer("num.network.threads", None, DOCUMENTATION, minimum=1, effective=False),
    )
}
"""Options that Kafka also has behind a listener's prefix, for one broker or for all (its
``ClusterLevelListenerConfigs``). All listeners share the network threads here."""

_PER_LISTENER_ONLY = """
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
"""
PER_LISTENER_ONLY = frozenset(_PER_LISTENER_ONLY.split())
"""Options that Kafka changes only under a listener's prefix (``DynamicSecurityConfigs``)."""


def without_listener(name: str) -> str | None:
    """The name without ``listener.name.NAME.`` (and, for SASL, the mechanism); None without such a
    prefix."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    return "sasl.jaas.config" if rest.endswith(".sasl.jaas.config") else rest


def listener_option(name: str) -> Option | None:
    """One of :data:`OF_EACH_LISTENER` behind a listener's prefix."""
    option = OF_EACH_LISTENER.get(without_listener(name) or "")
    return None if option is None else option._replace(name=name)


def dynamic_without_effect(name: str) -> Option | None:
    """Behind a listener's prefix such an option is one broker's only."""
    rest = without_listener(name)
    if rest is None:
        return DYNAMIC_WITHOUT_EFFECT.get(name)
    option = DYNAMIC_WITHOUT_EFFECT.get(rest)
    return None if option is None else option._replace(name=name, update_mode=PER_BROKER)
