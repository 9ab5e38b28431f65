"""From a request's bytes to its answer's bytes. The table of APIs is
:data:`pyrklog.protocol.registry.ROWS`."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import trio

from pyrklog.base.pending import Pending
from pyrklog.cluster.requests import BrokerChannel, ControllerAdmin
from pyrklog.groups.core_types import Heartbeat, OffsetCommit
from pyrklog.groups.messages import MemberHeartbeat
from pyrklog.handlers.context import LIMIT_SECONDS, Context, Later, WhenDone
from pyrklog.handlers.decoding import DECODED_MAX_BYTES, MEMORY_SHARE, Decoding
from pyrklog.handlers.service import STORE_AWAY, ClusterService
from pyrklog.metastore.interface import SessionExpiredError
from pyrklog.plane.seam import Request, VerifyTransaction
from pyrklog.protocol.api import Api
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.fields import Message
from pyrklog.protocol.primitives import DecodeError
from pyrklog.protocol.registry import ROWS, find_api

if TYPE_CHECKING:
    from pyrklog.groups.requests import GroupCoordinator
    from pyrklog.transactions.parts import TransactionParts

Handler = Callable[[Context, Any], Awaitable[Any]]
HandlerNow = Callable[[Context, Any], Any]
ErrorAnswer = Callable[[Any, ErrorCode, str | None], Any]

LARGE_BYTES = 16 << 10
"""Larger bodies name thousands of elements: they are decoded in turn, and a thread encodes their
answers."""
IN_TURN_WHEN_LARGE = frozenset((8, 9, 13, 24))
"""Requests handled at once that may name many elements: OffsetCommit, OffsetFetch, LeaveGroup,
AddPartitionsToTxn.
(JoinGroup and SyncGroup are large by the bytes of single elements.)"""
BETWEEN_BROKERS = frozenset(("inter_broker", "to_controller"))
"""Modules of requests between brokers; their senders have time-outs of their own."""
COORDINATOR_MODULES = frozenset(
    (
        "coordinators",
        "group_admin",
        "groups",
        "offsets",
        "transaction_admin",
        "transaction_offsets",
        "transactions",
    )
)
ELEMENTS_MAX, ELEMENTS_MIN = 400_000, 10_000
ELEMENT_BYTES = 4096
"""A client's request may name one element for so much memory of the machine, within bounds."""
WHOLE_PLANS = frozenset((45,))
PLAN_FACTOR = 4
"""Kafka's tool sends a plan for all partitions at once; each broker id is an element."""
CONTROL_ELEMENTS_MAX = 8 * ELEMENTS_MAX
"""A controller may name all replicas of a cluster at once; no valid request of 16 MiB names more.
With less memory the bound is that of plans."""
LIMIT_LEAST_SECONDS = 5.0
LIMIT_MOST_SECONDS = 600.0
LIMIT_GRACE_SECONDS = 2.0
"""The same for requests with a time-out, which covers the wait for replicas; the metadata store is
asked before."""


@dataclass(frozen=True, slots=True)
class Route:
    """Codec, handler and error answer of one API.

    ``handler`` is a coroutine. ``handler_now`` replaces it for requests handled at once, in their
    order: a function ``name_now`` that returns the answer or a :class:`Later`. It saves a task,
    which costs more than a heartbeat's answer. ``late`` is the code after the time limit,
    ``expired`` the code after the end of the metadata store's session. Both are retriable; Java's
    admin client itself retries no code of the requests for options.
    """

    api: Api[Any, Any]
    handler: Handler | None
    handler_now: HandlerNow | None
    error_answer: ErrorAnswer
    late: ErrorCode
    expired: ErrorCode
    is_between_brokers: bool

    def limit_seconds(self, decoded: Any) -> float | None:
        """Longest time of this answer; None = unlimited."""
        if self.is_between_brokers:
            return None
        timeout_ms: int | None = getattr(decoded, "timeout_ms", None)
        if timeout_ms is None:
            return LIMIT_SECONDS
        limit = timeout_ms / 1000 + LIMIT_GRACE_SECONDS
        return min(max(limit, LIMIT_LEAST_SECONDS), LIMIT_MOST_SECONDS)

    def late_answer(self, decoded: Any, api_version: int) -> bytes:
        """The answer after the time limit."""
        late = self.error_answer(decoded, self.late, self.late.message)
        return self.api.encode_response(late, api_version)


def load_route(api_key: int) -> Route:
    module_name, name = ROWS[api_key]
    name = name.lower()
    module = import_module(f"pyrklog.handlers.{module_name}")
    is_of_coordinators = module_name in COORDINATOR_MODULES
    late, expired = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER
    if is_of_coordinators:
        late = expired = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif module_name == "configs":
        # No controller is asked, so none need be looked for.
        expired = ErrorCode.REQUEST_TIMED_OUT
    elif module_name == "producer_ids":
        # Java producers up to 3.2 stop at any other code (KAFKA-14417).
        late = expired = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif module_name == "telemetry":
        # Java clients push no more after a code that they do not expect here.
        late = expired = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    handler_now = getattr(module, f"{name}_now", None)
    handler = None if handler_now else getattr(module, name)
    api = find_api(api_key)
    error_answer = getattr(module, f"{name}_error", None) or partial(_error_alone, api.response)
    return Route(
        api,
        handler,
        handler_now,
        error_answer,
        late,
        expired,
        is_between_brokers=module_name in BETWEEN_BROKERS,
    )


def _error_alone(
    response: Callable[..., Message], _request: Any, code: ErrorCode, message: str | None
) -> Message:
    """The error answer of APIs whose response has a code of its own, perhaps with a message."""
    answer = response(error_code=code)
    if hasattr(answer, "error_message"):
        answer.error_message = message
    return answer


class Handlers:
    def __init__(
        self,
        service: ClusterService,
        groups: "GroupCoordinator",
        transactions: "TransactionParts",
        control_requests: BrokerChannel,
        controller: ControllerAdmin,
        memory_bytes: int = ELEMENTS_MAX * ELEMENT_BYTES,
    ) -> None:
        affordable = max(ELEMENTS_MIN, memory_bytes // ELEMENT_BYTES)
        self._elements_max = min(ELEMENTS_MAX, affordable)
        self._control_elements_max = min(CONTROL_ELEMENTS_MAX, PLAN_FACTOR * affordable)
        decoded_max_bytes = min(DECODED_MAX_BYTES, memory_bytes // MEMORY_SHARE)
        self._decoding = Decoding(decoded_max_bytes)
        self._control_decoding = Decoding(decoded_max_bytes)
        self._groups = groups
        self._large_answers = trio.Lock()
        self._transactions = transactions
        self._context = partial(
            Context,
            service,
            groups,
            transactions,
            control_requests,
            controller,
            self._large_answers,
        )
        self._routes: dict[int, Route] = {}

    async def handle(self, request: Request) -> bytes | None:
        """The body of the answer; None where Python does not serve the API, or had no room to
        decode.

        Raises :class:`DecodeError` for a malformed body: the caller closes the connection.
        """
        begun = self.begin(request)
        return begun if begun is None or isinstance(begun, bytes) else await begun.wait()

    def begin(self, request: Request) -> bytes | Later[bytes | None] | WhenDone[bytes] | None:
        """Acts on a request up to its first wait. Returns the answer's body or the deferred rest;
        None where Python does not serve the API. Raises as :meth:`handle`."""
        route = self._route(request.api_key)
        if route is None:
            return None
        context = self._context(self._elements_max, request.session, request.api_version)
        if route.handler_now is None:
            return Later(partial(self._ask, route, context, request), waits=False)
        if len(request.body) > LARGE_BYTES and request.api_key in IN_TURN_WHEN_LARGE:
            return Later(partial(self._ask, route, context, request), waits=False)
        decoded = self._decode(route, request)
        answer = route.handler_now(context, decoded)
        if isinstance(answer, WhenDone):
            encode = partial(_encode_done, route, request.api_version, answer.convert)
            return WhenDone(answer.pending, encode, answer.is_limited)
        if isinstance(answer, Later):
            later = partial(_encode_later, route, context, decoded, answer)
            return Later(later, waits=answer.waits)
        return route.api.encode_response(answer, request.api_version)

    async def _ask(self, route: Route, context: Context, request: Request) -> bytes | None:
        decode = partial(self._decode, route, request)
        decoding = self._control_decoding if route.is_between_brokers else self._decoding
        found = await decoding.decode(len(request.body), decode)
        if found is None:
            return None
        decoded, size = found
        try:
            is_large = len(request.body) > LARGE_BYTES
            return await self._ask_decoded(route, context, decoded, is_large=is_large)
        finally:
            decoding.give_back(size)

    async def _ask_decoded(
        self, route: Route, context: Context, decoded: Any, *, is_large: bool
    ) -> bytes:
        limit = route.limit_seconds(decoded)
        if limit is None:
            return await _answer(route, context, decoded, is_large=is_large)
        with trio.move_on_after(limit):
            return await _answer(route, context, decoded, is_large=is_large)
        return route.late_answer(decoded, context.api_version)

    def heartbeat(self, heartbeat: Heartbeat) -> ErrorCode:
        return self._groups.heartbeat(
            MemberHeartbeat(
                heartbeat.group_id,
                heartbeat.generation,
                heartbeat.member_id,
                heartbeat.instance_id,
            )
        )

    def commit_as_member(self, commit: OffsetCommit) -> bool:
        """Whether the coordinator has taken the commit; the data plane then answers it. If False,
        call :meth:`begin`."""
        return self._groups.commit_as_member(commit)

    def verify_transaction_now(
        self, asked: VerifyTransaction
    ) -> list[ErrorCode] | Pending[list[ErrorCode]] | None:
        """The same without a wait, where this broker coordinates the transaction; None: call
        :meth:`verify_transaction`."""
        from pyrklog.transactions.messages import ProducerEpoch

        return self._transactions.verifier.verify_now(
            asked.transactional_id,
            ProducerEpoch(asked.producer_id, asked.producer_epoch),
            asked.partitions,
            enrols=asked.enrols,
        )

    async def verify_transaction(self, asked: VerifyTransaction) -> list[ErrorCode]:
        """The code of the transaction's coordinator for each partition."""
        from pyrklog.transactions.messages import ProducerEpoch

        return await self._transactions.verifier.verify(
            asked.transactional_id,
            ProducerEpoch(asked.producer_id, asked.producer_epoch),
            asked.partitions,
            enrols=asked.enrols,
        )

    def error_reply(self, request: Request, code: ErrorCode) -> bytes | None:
        """The answer in which every part failed with ``code``; None for an API that Python does not
        serve, or a malformed body."""
        route = self._route(request.api_key)
        if route is None:
            return None
        try:
            decoded = self._decode(route, request)
        except DecodeError:
            return None
        response = route.error_answer(decoded, code, code.message)
        return route.api.encode_response(response, request.api_version)

    def late_reply(self, request: Request) -> bytes | None:
        route = self._route(request.api_key)
        return None if route is None else self.error_reply(request, route.late)

    def _decode(self, route: Route, request: Request) -> Any:
        elements_max = self._elements_max
        if route.is_between_brokers:
            elements_max = self._control_elements_max
        elif route.api.key in WHOLE_PLANS:
            elements_max *= PLAN_FACTOR
        return route.api.decode_request(
            request.body, request.api_version, elements_max=elements_max
        )

    def _route(self, api_key: int) -> Route | None:
        route = self._routes.get(api_key)
        if route is None and api_key in ROWS:
            route = self._routes[api_key] = load_route(api_key)
        return route


def _encode_done(
    route: Route, api_version: int, convert: Callable[[Any], Any], result: Any
) -> bytes:
    return route.api.encode_response(convert(result), api_version)


async def _encode_later(route: Route, context: Context, decoded: Any, answer: Later[Any]) -> bytes:
    with trio.move_on_after(LIMIT_SECONDS if answer.is_limited else math.inf):
        response = await answer.wait()
        return await _encode(route, context, response, is_large=answer.is_large)
    return route.late_answer(decoded, context.api_version)


async def _encode(route: Route, context: Context, response: Any, *, is_large: bool) -> bytes:
    if is_large:
        encode = partial(route.api.encode_response, response, context.api_version)
        return await trio.to_thread.run_sync(encode)
    return route.api.encode_response(response, context.api_version)


async def _act(route: Route, context: Context, decoded: Any) -> Any:
    if route.handler is not None:
        return await route.handler(context, decoded)
    assert route.handler_now is not None
    answer = route.handler_now(context, decoded)
    return await answer.wait() if isinstance(answer, Later | WhenDone) else answer


async def _answer(route: Route, context: Context, decoded: Any, *, is_large: bool) -> bytes:
    try:
        response = await _act(route, context, decoded)
    except ApiError as error:
        response = route.error_answer(decoded, error.code, error.message)
    except SessionExpiredError:
        # The write may have happened; a retry finds out.
        response = route.error_answer(decoded, route.expired, STORE_AWAY)
    return await _encode(route, context, response, is_large=is_large)
