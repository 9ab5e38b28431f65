"""From a request's bytes to its answer's bytes. The table of handlers is :data:`ROUTES`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from pyrklog.controller.requests import BrokerChannel, ControllerAdmin
from pyrklog.controller.service import ClusterService
from pyrklog.groups.service import GroupService
from pyrklog.groups.table import Heartbeat, OffsetCommit
from pyrklog.groups.values import HeartbeatRequest
from pyrklog.handlers.context import Context, Request
from pyrklog.protocol.api import Api
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.primitives import DecodeError
from pyrklog.protocol.registry import find_api

Handler = Callable[[Context, Any], Awaitable[Any]]
HandlerNow = Callable[[Context, Any], Any]
ErrorAnswer = Callable[[Any, ErrorCode, str | None], Any]

ROUTES: dict[int, tuple[str, str]] = {
    4: ("inter_broker", "leader_and_isr"),
    5: ("inter_broker", "stop_replica"),
    6: ("inter_broker", "update_metadata"),
    7: ("to_controller", "controlled_shutdown"),
    8: ("offsets", "offset_commit"),
    9: ("offsets", "offset_fetch"),
    10: ("coordinators", "find_coordinator"),
    11: ("groups", "join_group"),
    12: ("groups", "heartbeat"),
    13: ("groups", "leave_group"),
    14: ("groups", "sync_group"),
    15: ("group_admin", "describe_groups"),
    16: ("group_admin", "list_groups"),
    19: ("topics", "create_topics"),
    20: ("topics", "delete_topics"),
    21: ("records", "delete_records"),
    22: ("producer_ids", "init_producer_id"),
    32: ("configs", "describe_configs"),
    33: ("configs", "alter_configs"),
    35: ("log_dirs", "describe_log_dirs"),
    37: ("topics", "create_partitions"),
    42: ("group_admin", "delete_groups"),
    43: ("elections", "elect_leaders"),
    44: ("configs", "incremental_alter_configs"),
    45: ("reassignments", "alter_partition_reassignments"),
    46: ("reassignments", "list_partition_reassignments"),
    47: ("offsets", "offset_delete"),
    56: ("to_controller", "alter_partition"),
    60: ("cluster", "describe_cluster"),
    67: ("to_controller", "allocate_producer_ids"),
    20_001: ("verification", "replica_digest"),
    20_002: ("verification", "state_changes"),
}
"""API key -> (module in this package, name of the handler)."""


@dataclass(frozen=True, slots=True)
class Route:
    """Codec, handler and error answer of one API.

    ``handler_now`` is for what never waits: a function ``name_now`` beside the handler. It spares a
    task, which for a heartbeat costs more than the answer.
    """

    api: Api[Any, Any]
    handler: Handler
    handler_now: HandlerNow | None
    error_answer: ErrorAnswer


def load_route(api_key: int) -> Route:
    """Imports what serves this API; ``KeyError`` where Python does not."""
    module_name, name = ROUTES[api_key]
    module = import_module(f"pyrklog.handlers.{module_name}")
    return Route(
        find_api(api_key),
        getattr(module, name),
        getattr(module, f"{name}_now", None),
        getattr(module, f"{name}_error"),
    )


class Handlers:
    """Answers requests; modules are imported at the first request that needs them."""

    def __init__(
        self,
        service: ClusterService,
        groups: GroupService,
        orders: BrokerChannel,
        controller: ControllerAdmin,
        park: Callable[[int], None],
    ) -> None:
        """``park`` takes the number of a request whose answer waits for other clients."""
        self._service = service
        self._groups = groups
        self._orders = orders
        self._controller = controller
        self._park = park
        self._routes: dict[int, Route] = {}

    async def handle(self, request: Request) -> bytes | None:
        """The body of the answer, or None where Python does not serve the API.

        Raises :class:`DecodeError` for a body that is not what its header says: the caller then
        closes the connection.
        """
        route = self._route(request.api_key)
        if route is None:
            return None
        decoded = route.api.decode_request(request.body, request.api_version)
        context = self._context(request)
        try:
            response = await route.handler(context, decoded)
        except ApiError as error:
            response = route.error_answer(decoded, error.code, error.message)
        return route.api.encode_response(response, request.api_version)

    def handle_now(self, request: Request) -> bytes | None:
        """The body of the answer where the API never waits; None where :meth:`handle` is to be
        asked. Raises what that would raise."""
        route = self._route(request.api_key)
        if route is None or route.handler_now is None:
            return None
        decoded = route.api.decode_request(request.body, request.api_version)
        response = route.handler_now(self._context(request), decoded)
        return route.api.encode_response(response, request.api_version)

    def heartbeat(self, heartbeat: Heartbeat) -> ErrorCode:
        """The coordinator's code for a heartbeat that is decoded already."""
        return self._groups.heartbeat(
            HeartbeatRequest(
                heartbeat.group_id,
                heartbeat.generation,
                heartbeat.member_id,
                heartbeat.instance_id,
            )
        )

    def commit_as_member(self, commit: OffsetCommit) -> bool:
        """Whether the coordinator has taken the commit, which the data plane then answers; False:
        :meth:`handle` is to be asked."""
        return self._groups.commit_as_member(commit)

    def _context(self, request: Request) -> Context:
        return Context(
            self._service,
            self._groups,
            self._orders,
            self._controller,
            request.session,
            request.api_version,
            partial(self._park, request.id),
        )

    def error_reply(self, request: Request, code: ErrorCode) -> bytes | None:
        """The answer in which everything asked for failed with ``code``; None where there is no
        such answer (an API that Python does not serve, a body that cannot be read)."""
        route = self._route(request.api_key)
        if route is None:
            return None
        try:
            decoded = route.api.decode_request(request.body, request.api_version)
        except DecodeError:
            return None
        response = route.error_answer(decoded, code, code.message)
        return route.api.encode_response(response, request.api_version)

    def _route(self, api_key: int) -> Route | None:
        route = self._routes.get(api_key)
        if route is None and api_key in ROUTES:
            route = self._routes[api_key] = load_route(api_key)
        return route


def build_handlers(
    service: ClusterService,
    groups: GroupService,
    orders: BrokerChannel,
    controller: ControllerAdmin,
    park: Callable[[int], None],
) -> Handlers:
    """The handlers of a broker whose control plane these are."""
    return Handlers(service, groups, orders, controller, park)
