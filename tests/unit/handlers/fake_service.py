"""A control plane with prepared answers that records its calls."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    ControlRequest,
    ControlResponse,
    Elected,
    ElectionKind,
    ProducerIdsResponse,
    Refusal,
    TopicPartition,
)
from pyrklog.cluster.topic_pages import TopicPage
from pyrklog.controller.state_log import LogPiece
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.groups.options import GroupOptions, GroupSettings
from pyrklog.groups.requests import GroupCoordinator
from pyrklog.handlers import service
from pyrklog.handlers.dispatch import Handlers
from pyrklog.plane.seam import DigestRange, LogDirUsage, ReplicaDigest
from pyrklog.protocol.health import BrokerHealthRequest, BrokerHealthResponse
from pyrklog.protocol.lag import (
    GroupLagRequest,
    GroupLagResponse,
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
)
from pyrklog.protocol.observation import Outcome
from pyrklog.protocol.registry import find_api
from pyrklog.telemetry.client_metrics import ClientMetrics
from pyrklog.testing.fake_offsets import FakeLog, FakeTopic
from pyrklog.testing.fake_plane import FakePlane
from pyrklog.transactions.parts import TransactionParts
from tests.unit.transactions.rig import make_parts

TELEMETRY_MAX_BYTES = 10_000


@dataclass
class FakeSession:
    connection: int = 1
    principal: str = "User:ANONYMOUS"
    host: str = "127.0.0.1"
    client_id: str | None = "test"
    listener: str = "PLAINTEXT"
    port: int = 50_000
    software_name: str | None = None
    software_version: str | None = None


@dataclass
class FakeRequest:
    """A request as the plane hands it over."""

    api_key: int
    api_version: int
    body: bytes
    id: int = 1
    session: FakeSession = field(default_factory=FakeSession)


class GivenOptions:
    """Options of client metrics."""

    def __init__(self) -> None:
        self.options: dict[str, Mapping[str, str]] = {}
        self.version = 0

    def give(self, name: str, **options: str) -> None:
        """Underscores of names stand for dots; without options the subscription is deleted."""
        self.version += 1
        self.options.pop(name, None)
        if options:
            self.options[name] = {key.replace("_", "."): one for key, one in options.items()}


class FakeService:
    """Implements :class:`pyrklog.handlers.service.ClusterService`.

    ``answers`` maps a method's name to its result, or to an :class:`ApiError` to raise; ``calls``
    lists (name, positional arguments, keyword arguments).
    """

    node_id = 1

    def __init__(self, **answers: Any) -> None:
        self.subscriptions = GivenOptions()
        self.client_metrics = ClientMetrics(self.subscriptions, TELEMETRY_MAX_BYTES)
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def _answer(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.calls.append((name, arguments, options))
        answer = self.answers.get(name, [])
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def asked(self, name: str) -> Any:
        (arguments,) = [a for called, a, _ in self.calls if called == name]
        return arguments[0]

    def options(self, name: str) -> dict[str, Any]:
        (options,) = [o for called, _, o in self.calls if called == name]
        return options

    async def create_topics(
        self, specs: Sequence[service.TopicSpec], *, validate_only: bool, timeout_ms: int
    ) -> list[service.TopicResult]:
        result: list[service.TopicResult] = self._answer(
            "create_topics", specs, validate_only=validate_only, timeout_ms=timeout_ms
        )
        return result

    async def create_own_topic(
        self, spec: service.TopicSpec, *, timeout_ms: int
    ) -> service.TopicResult:
        result: service.TopicResult = self._answer("create_own_topic", spec, timeout_ms=timeout_ms)
        return result

    @property
    def knows_brokers(self) -> bool:
        return True

    async def wait_for_brokers(self) -> None:
        self._answer("wait_for_brokers")

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        result: dict[str, ErrorCode] = self._answer("auto_create_topics", names)
        return result

    async def delete_topics(
        self, topics: Sequence[service.TopicRef], *, timeout_ms: int
    ) -> list[service.DeletedTopic]:
        result: list[service.DeletedTopic] = self._answer(
            "delete_topics", topics, timeout_ms=timeout_ms
        )
        return result

    async def create_partitions(
        self, specs: Sequence[service.PartitionsSpec], *, validate_only: bool, timeout_ms: int
    ) -> list[service.NamedResult]:
        result: list[service.NamedResult] = self._answer(
            "create_partitions", specs, validate_only=validate_only, timeout_ms=timeout_ms
        )
        return result

    async def describe_configs(
        self,
        resources: Sequence[tuple[service.ConfigResource, Set[str] | None]],
    ) -> list[service.DescribedConfigs]:
        result: list[service.DescribedConfigs] = self._answer(
            "describe_configs",
            resources,
        )
        return result

    async def incremental_alter_configs(
        self,
        alterations: Sequence[tuple[service.ConfigResource, Sequence[service.ConfigAlteration]]],
        *,
        validate_only: bool,
    ) -> list[service.AlteredConfigs]:
        result: list[service.AlteredConfigs] = self._answer(
            "incremental_alter_configs", alterations, validate_only=validate_only
        )
        return result

    async def alter_configs(
        self,
        replacements: Sequence[tuple[service.ConfigResource, Mapping[str, str | None]]],
        *,
        validate_only: bool,
    ) -> list[service.AlteredConfigs]:
        result: list[service.AlteredConfigs] = self._answer(
            "alter_configs", replacements, validate_only=validate_only
        )
        return result

    def describe_cluster(self, listener: str) -> service.ClusterDescription:
        brokers = [service.ClusterBroker(1, "127.0.0.1", 9092, None)]
        default = service.ClusterDescription("cluster", 1, brokers)
        self.answers.setdefault("describe_cluster", default)
        result: service.ClusterDescription = self._answer("describe_cluster", listener)
        return result

    def topics(self) -> Sequence[service.TopicInfo]:
        result: Sequence[service.TopicInfo] = self._answer("topics")
        return result

    def topic(self, name: str) -> service.TopicInfo | None:
        return next((one for one in self.topics() if one.name == name), None)

    def topic_page(
        self, names: Sequence[str] | None, start: TopicPartition, limit: int, listener: str
    ) -> TopicPage:
        result: TopicPage = self._answer("topic_page", names, start, limit, listener)
        return result

    async def delete_records(
        self, targets: Sequence[service.DeleteRecordsTarget], *, timeout_ms: int, host: str
    ) -> list[service.DeletedRecords]:
        result: list[service.DeletedRecords] = self._answer(
            "delete_records", targets, timeout_ms, host=host
        )
        return result

    def log_start_moved(self, topic: str, partition: int) -> None:
        raise AssertionError("no handler tells of it")

    async def alter_log_dirs(self, wanted: Sequence[tuple[str, int, str]]) -> Sequence[int]:
        result: Sequence[int] = self._answer("alter_log_dirs", wanted)
        return result

    async def describe_log_dirs(
        self, partitions: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[LogDirUsage]:
        result: Sequence[LogDirUsage] = self._answer("describe_log_dirs", partitions)
        return result

    async def replica_digest(self, topic: str, partition: int, asked: DigestRange) -> ReplicaDigest:
        result: ReplicaDigest = self._answer("replica_digest", topic, partition, asked)
        return result

    async def state_changes(self, *, older: bool, position: int, max_bytes: int) -> LogPiece:
        result: LogPiece = self._answer(
            "state_changes", older=older, position=position, max_bytes=max_bytes
        )
        return result

    async def group_lag(self, request: GroupLagRequest, address: str) -> GroupLagResponse:
        found: GroupLagResponse = self._answer("group_lag", request)
        return found

    async def partition_offsets(
        self, request: PartitionOffsetsRequest, address: str
    ) -> PartitionOffsetsResponse:
        found: PartitionOffsetsResponse = self._answer("partition_offsets", request)
        return found

    async def health(self, request: BrokerHealthRequest, address: str) -> BrokerHealthResponse:
        found: BrokerHealthResponse = self._answer("health", request)
        return found

    async def observe(self, broker: int, seconds: float) -> Outcome:
        outcome: Outcome = self._answer("observe", broker, seconds)
        return outcome

    async def wait_for_leaders(
        self, leaders: Mapping[tuple[str, int], int], *, timeout_ms: int
    ) -> set[tuple[str, int]]:
        result: set[tuple[str, int]] = set(
            self._answer("wait_for_leaders", leaders, timeout_ms=timeout_ms)
        )
        return result

    async def next_producer_id(self) -> int:
        self.answers.setdefault("next_producer_id", 4000)
        result: int = self._answer("next_producer_id")
        return result


class ReplicaOrders:
    """Accepts requests and never answers."""

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        pass


class FakeController:
    """Refuses brokers' requests; answers administrators from ``answers``, by method name.

    ``asked`` lists (name, argument). Without an answer another broker is the controller.
    """

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, [])

    async def shut_down(self, broker: int, broker_epoch: int) -> ControlledShutdownResponse:
        return ControlledShutdownResponse(ErrorCode.NOT_CONTROLLER, [])

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdsResponse:
        return ProducerIdsResponse(ErrorCode.NOT_CONTROLLER, None)

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        at_end: Collection[TopicPartition] = (),
    ) -> Mapping[TopicPartition, Refusal] | None:
        result: Mapping[TopicPartition, Refusal] | None
        result = self._answer("alter_reassignments", (wanted, set(at_end)))
        return result

    async def reassignments(
        self, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, PartitionAssignment] | None:
        result: Mapping[TopicPartition, PartitionAssignment] | None
        result = self._answer("reassignments", keys)
        return result

    async def elect(
        self, kind: ElectionKind, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, Elected] | None:
        result: Mapping[TopicPartition, Elected] | None = self._answer("elect", (kind, keys))
        return result

    def _answer(self, name: str, argument: Any) -> Any:
        self.asked.append((name, argument))
        return self.answers.get(name)


def make_handlers(
    fake: FakeService,
    groups: GroupCoordinator | None = None,
    controller: FakeController | None = None,
    transactions: TransactionParts | None = None,
    **bounds: int,
) -> Handlers:
    """Handlers over a control plane; without ``groups`` and ``transactions`` there are none."""
    topic = FakeTopic(None, {})
    idle = GroupCoordinator(
        GroupSettings(),
        GroupOptions(),
        FakeLog(topic.led.get),
        topic,
        wall_ms=lambda: 0,
        fresh_id=lambda: "id",
    )
    controller = controller or FakeController()
    transactions = transactions or make_parts(FakePlane(), FakeTopic(None, {}))
    return Handlers(fake, groups or idle, transactions, ReplicaOrders(), controller, **bounds)


async def ask(
    fake: FakeService,
    key: int,
    version: int,
    message: Any,
    groups: GroupCoordinator | None = None,
    controller: FakeController | None = None,
    transactions: TransactionParts | None = None,
    session: FakeSession | None = None,
) -> Any:
    """Sends a request through the bytes and back."""
    api = find_api(key)
    asked = api.encode_request(message, version)
    request = FakeRequest(key, version, asked, session=session or FakeSession())
    body = await make_handlers(fake, groups, controller, transactions).handle(request)
    assert body is not None
    return api.decode_response(body, version)
