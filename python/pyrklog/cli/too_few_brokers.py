"""Why a cluster has no groups or transactions: it is too small for their internal topic."""

from collections.abc import Iterable

import typer

from pyrklog.cli.cluster_requests import ClusterRequests, broker_addresses
from pyrklog.cli.cluster_views import is_plain
from pyrklog.cli.config_cluster import ConfigAdmin, Entry
from pyrklog.cli.config_kinds import Kind
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import Settings
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.protocol.errors import ErrorCode
from pyrklog.transactions.manager import TRANSACTION_TOPIC

_FACTORS = {
    OFFSETS_TOPIC: ("groups", "offsets.topic.replication.factor"),
    TRANSACTION_TOPIC: ("transactions", "transaction.state.log.replication.factor"),
}

_OURS, _STORE = "pyrklog.data.dir", "zookeeper.connect"
"""Without a store our broker is alone, and makes such topics with one replica by default."""


def tell_too_few_brokers(settings: Settings, topic: str) -> None:
    """Says on standard error why the cluster can have nothing of what the topic is for."""
    if settings.quiet or not is_plain(settings):
        return
    with ClusterRequests(settings) as requests:
        found = too_few_brokers(requests, topic)
    if found is not None:
        typer.echo(f"note: {found}", err=True)


def too_few_brokers(requests: ClusterRequests, topic: str) -> str | None:
    """A note about a missing internal topic that cannot be made; None if it is there, or can be
    made at its first use, or if the cluster does not tell."""
    option = _FACTORS[topic][1]
    try:
        metadata = requests.metadata([topic])
        if all(one.error_code == ErrorCode.NONE for one in metadata.topics):
            return None
        admin = ConfigAdmin(requests, Kind.BROKER)
        told = admin.describe(admin.broker_names[:1], [option, _OURS, _STORE])
    except CliError:
        return None
    entries = [one for found in told.values() for one in found]
    return note(topic, len(broker_addresses(metadata)), entries)


def note(topic: str, alive: int, entries: Iterable[Entry]) -> str | None:
    what, option = _FACTORS[topic]
    told = {one.name: one for one in entries}
    factor = told.get(option)
    if factor is None or not (factor.value or "").isdecimal():
        return None
    is_alone = _OURS in told and not (_STORE in told and told[_STORE].value)
    needed = 1 if is_alone and factor.source == "default" else int(factor.value or "")
    if needed <= alive:
        return None
    brokers = f"{alive} broker is" if alive == 1 else f"{alive} brokers are"
    return (
        f"no {what} are possible: {topic} needs {needed} brokers ({option}), and {brokers} alive; "
        "start more, or set it on each broker"
    )
