"""BrokerHealth, our own: a broker's findings about itself, and its view of the cluster.

The key is far above Kafka's, as in ``verification.py``. Answers are bounded: each list has at most
two hundred findings, the worst first, which name a hundred partitions together and count the
others; five hundred clients. health.md has the table of findings.
"""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Bool, Int16, Int32, Int64, Message, Str, empty_list, tagged

NO_BROKER = -1
REASONS_MAX = 200
PARTITIONS_MAX = 100
CLIENTS_MAX = 500


class BrokerHealthRequest(Message):
    """``includes_cluster``: also the cluster by this broker's metadata. ``restarted``: also what
    the end of that broker would do; -1 for none. ``includes_clients``: also the clients that it has
    met; brokers that do not know the field tell none."""

    includes_cluster: Bool = False
    restarted: Int32 = NO_BROKER
    includes_clients: Annotated[Bool, tagged(0, since=0)] = False


class HealthReason(Message):
    """``partitions`` are the first of ``partition_count``. ``broker`` -1: none in particular."""

    kind: Str
    severity: Str
    what: Str
    broker: Int32 = NO_BROKER
    fix: Str | None = None
    partition_count: Int32 = 0
    partitions: list[Str] = empty_list()


class ClientVersion(Message):
    """The oldest version of an API that a client used."""

    api: Str
    version: Int16


class ClientRefusal(Message):
    """Why requests of a client were refused, and how many."""

    what: Str
    count: Int32


class HealthClient(Message):
    """A client by its id and address. ``software_name`` and ``software_version`` are what it calls
    itself (KIP-511), empty where that is unknown. Times are milliseconds since the epoch."""

    client_id: Str
    host: Str
    software_name: Str = ""
    software_version: Str = ""
    first_seen_ms: Int64 = 0
    last_seen_ms: Int64 = 0
    oldest: list[ClientVersion] = empty_list()
    refused: list[ClientRefusal] = empty_list()


class AwayBroker(Message):
    """A broker that is no member of the cluster any more, and for how long."""

    broker: Int32
    away_ms: Int64


class BrokerHealthResponse(Message):
    """``clock_ms`` is the broker's clock as it answers, in milliseconds since the epoch;
    ``controller_id`` whom it takes for the controller. ``left_out`` counts findings beyond the
    bound. ``stage``: starting, serving or ending. ``clients``: the last seen of those that the
    broker remembers, null unless asked for; ``clients_left_out``: met, and not told. ``away``:
    brokers that it has seen go, at most a hundred."""

    error_code: Int16 = 0
    error_message: Str | None = None
    broker: Int32 = NO_BROKER
    cluster_id: Str = ""
    version: Str = ""
    stage: Str = ""
    clock_ms: Int64 = 0
    controller_id: Int32 = NO_BROKER
    reasons: list[HealthReason] = empty_list()
    brokers: list[Int32] = empty_list()
    partition_count: Int32 = 0
    cluster_reasons: list[HealthReason] = empty_list()
    restart_level: Str = ""
    restart_reasons: list[HealthReason] = empty_list()
    left_out: Int32 = 0
    clients: Annotated[list[HealthClient] | None, tagged(0, since=0)] = None
    clients_left_out: Annotated[Int32, tagged(1, since=0)] = 0
    away: Annotated[list[AwayBroker] | None, tagged(2, since=0)] = None


BROKER_HEALTH = Api(
    20_004, BrokerHealthRequest, BrokerHealthResponse, versions=(0, 0), flexible_since=0
)
