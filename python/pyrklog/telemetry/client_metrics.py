"""Client metrics (KIP-714): answers clients that ask what to push, and takes what they push.

A push is answered before it is read, as in Kafka: a client produces and fetches on the same
connection. Pushes are expanded and read on another thread, one at a time, which rests afterwards:
all clients together take a fifth of a core at most, as scrapes do. A client learns with its next
push that one could not be read.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import trio

from pyrklog.base.client_places import client_of
from pyrklog.base.logs import get_logger
from pyrklog.base.told import Told
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.metastore.znodes import encode_id
from pyrklog.telemetry.core_telemetry import decompress
from pyrklog.telemetry.instances import ClientInstance, Instances
from pyrklog.telemetry.otlp import InvalidMetricsError, Labels, Reading, read_metrics, shown_text
from pyrklog.telemetry.push_queue import PushQueue, WaitingPush
from pyrklog.telemetry.series import SeriesKey, SeriesTable, Value, shown_bytes
from pyrklog.telemetry.subscriptions import (
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    SOFTWARE_NAME,
    SOFTWARE_VERSION,
    SOURCE_ADDRESS,
    Subscriptions,
    Terms,
    attributes_of,
    subscription_id,
)

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""As Kafka tells them: a client takes the first that it has, or none."""
PUSH_BYTES_MAX = 15 << 20
"""Bounds ``telemetry.max.bytes``: a request has at most 16 MiB."""
EXPANSION_MAX = 2
"""A push expands to so many times ``telemetry.max.bytes``. While it is read it takes up to forty
times that."""
REST = 4
"""How many times as long as it worked the reading thread rests."""
TELL_SECONDS = 60.0
TOLD_MAX = 10
"""So many reasons why a push was not read are logged in so many seconds, each once."""
INFO_LABELS = (CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS)

log = get_logger("client_metrics")


class KeptOptions(Protocol):
    """Options of all CLIENT_METRICS resources, by name; ``version`` grows with each change."""

    @property
    def options(self) -> Mapping[str, Mapping[str, str]]: ...
    @property
    def version(self) -> int: ...


class Client(NamedTuple):
    """Who asks or pushes."""

    client_id: str | None
    software_name: str | None
    software_version: str | None
    address: str
    port: int


class Granted(NamedTuple):
    instance_id: bytes
    subscription_id: int
    terms: Terms


class Push(NamedTuple):
    instance_id: bytes
    subscription_id: int
    is_terminating: bool
    codec: int
    metrics: bytes


class ExposedClient(NamedTuple):
    """A client with its series, for a reader on another thread."""

    instance_id: str
    client_id: str
    info: Labels
    """What it and its connection say of it."""
    series: Mapping[SeriesKey, Value]


class Exposed(NamedTuple):
    clients: Sequence[ExposedClient]
    instances: int
    pushes: int
    refused: Mapping[str, int]
    """Requests by the name of their error."""
    left_out: int


class ClientMetrics:
    def __init__(self, kept: KeptOptions, max_bytes: int) -> None:
        """``max_bytes``: ``telemetry.max.bytes``."""
        self.max_bytes = min(max_bytes, PUSH_BYTES_MAX)
        self._kept = kept
        self._kept_version = -1
        self._subscriptions = Subscriptions()
        self._instances = Instances()
        self._table = SeriesTable()
        self._queue = PushQueue()
        self._rested_at = 0.0
        self._told = Told(TELL_SECONDS, TOLD_MAX, trio.current_time)
        self._pushes = 0
        self._refused: Counter[str] = Counter()

    @property
    def resources(self) -> list[str]:
        """Names of the subscriptions."""
        return self._follow().names

    def subscribe(self, instance_id: bytes, client: Client) -> Granted:
        """What an instance is to push; an id of zeros stands for a new one.

        Raises :class:`ApiError`.
        """
        if not any(instance_id):
            instance_id = self._new_id()
        now_ms = _now_ms()
        instance = self._instance(instance_id, client, now_ms)
        if not instance.may_ask(now_ms):
            raise self._refusal(_too_early(instance_id))
        instance.last_error = ErrorCode.NONE
        return Granted(instance_id, instance.subscription_id, instance.terms)

    def push(self, push: Push, client: Client) -> None:
        """Takes metrics, to be read later. Raises :class:`ApiError`, also for what could not be
        read of the push before; that is told once."""
        instance: ClientInstance | None = None
        try:
            if push.instance_id in _RESERVED_IDS:
                name = encode_id(push.instance_id)
                text = f"Invalid request from the client [{name}], invalid client instance id"
                raise ApiError(ErrorCode.INVALID_REQUEST, text)
            instance = self._instance(push.instance_id, client, _now_ms())
            self._check(instance, push)
            if push.metrics:
                self._let_wait(push, instance, client_of(client.address))
        except ApiError as error:
            if instance is not None:
                instance.last_error = error.code
            raise self._refusal(error) from None
        instance.last_error = ErrorCode.NONE
        instance.taken_ms = _now_ms()
        if not push.metrics:
            self._pushes += 1
            # The client has nothing any more, nor has what it pushed before and waits still.
            instance.round += 1
            self._forget(instance)

    async def run(self) -> None:
        """Reads pushes, until cancelled; those that wait then are dropped."""
        while True:
            try:
                await self.read_next()
            except Exception as error:
                self._refused[ErrorCode.UNKNOWN_SERVER_ERROR.name] += 1
                if self._told.is_due(type(error).__name__):
                    log.error("client_metrics_failed", exc_info=error)

    async def read_next(self) -> None:
        """Waits for a push, and reads it."""
        await trio.sleep_until(self._rested_at)
        push = await self._queue.take()
        work = partial(_read_timed, push, EXPANSION_MAX * self.max_bytes)
        seconds, found = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
        self._rested_at = trio.current_time() + REST * seconds
        instance = push.instance
        self._bring_up_to_date(instance)
        if isinstance(found, Reading):
            self._pushes += 1
        if push.round != instance.round or instance not in self._instances:
            return
        if isinstance(found, Reading):
            self._table.take(instance.pushed, instance.address, found)
        else:
            self._note_unread(instance, found)

    def exposed(self) -> Exposed:
        """What is to be shown now."""
        for one in self._instances.expire(_now_ms()):
            self._forget(one)
        clients = [_exposed(one) for one in self._instances if one.pushed.series]
        left_out = sum(one.pushed.left_out for one in self._instances)
        return Exposed(clients, len(self._instances), self._pushes, dict(self._refused), left_out)

    # --- instances -------------------------------------------------------------------------------

    def _follow(self) -> Subscriptions:
        if self._kept.version != self._kept_version:
            self._kept_version = self._kept.version
            self._subscriptions.replace(self._kept.options)
        return self._subscriptions

    def _new_id(self) -> bytes:
        while True:
            found = secrets.token_bytes(16)
            # As Kafka: none that looks like an option on a command line.
            is_plain = not encode_id(found).startswith("-")
            if is_plain and found not in _RESERVED_IDS and self._instances.get(found) is None:
                return found

    def _instance(self, instance_id: bytes, client: Client, now_ms: float) -> ClientInstance:
        subscriptions = self._follow()
        instance = self._instances.get(instance_id)
        if instance is None:
            attributes = attributes_of(instance_id, **client._asdict())
            terms = subscriptions.terms_for(attributes)
            number = subscription_id(terms, instance_id)
            version, address = subscriptions.version, client_of(client.address)
            instance = ClientInstance(instance_id, attributes, terms, number, version, address)
            shown = shown_text(attributes.get(CLIENT_ID, ""))
            instance.pushed.who_bytes += shown_bytes(shown)
        else:
            self._bring_up_to_date(instance)
        for one in self._instances.touch(instance, now_ms):
            self._forget(one)
        return instance

    def _bring_up_to_date(self, instance: ClientInstance) -> None:
        subscriptions = self._follow()
        if instance.version == subscriptions.version:
            return
        terms = subscriptions.terms_for(instance.attributes)
        instance.renew(terms, subscription_id(terms, instance.id), subscriptions.version)
        if not terms.metrics:
            self._forget(instance)

    def _forget(self, instance: ClientInstance) -> None:
        """Its series; it may go on and push others."""
        self._table.forget(instance.pushed, instance.address)

    # --- pushes ----------------------------------------------------------------------------------

    def _check(self, instance: ClientInstance, push: Push) -> None:
        was_terminating, instance.is_terminating = instance.is_terminating, push.is_terminating
        name = encode_id(push.instance_id)
        if was_terminating:
            text = (
                f"Client [{name}] sent the previous request with state terminating to TRUE, can "
                "not accept any requests after that"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if not instance.may_push(_now_ms()) and not push.is_terminating:
            raise _too_early(push.instance_id)
        if push.subscription_id != instance.subscription_id:
            text = f"Unknown client subscription id for the client [{name}]"
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, text)
        if push.codec != NONE and push.codec not in ACCEPTED_CODECS:
            text = f"Unknown compression type [{push.codec}] is received in telemetry request"
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{text} from [{name}]")
        if len(push.metrics) > self.max_bytes:
            raise self._too_large(push.instance_id)
        if instance.unread is not None:
            error, instance.unread = instance.unread, None
            raise error

    def _let_wait(self, push: Push, instance: ClientInstance, whose: str) -> None:
        waiting = WaitingPush(instance, whose, push.codec, push.metrics, instance.round)
        if not self._queue.put(waiting):
            text = "The broker has as many pushes to read as it keeps."
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)

    def _too_large(self, instance_id: bytes) -> ApiError:
        text = (
            f"Telemetry request from [{encode_id(instance_id)}] is larger than the maximum "
            f"allowed size [{self.max_bytes}]"
        )
        return ApiError(ErrorCode.TELEMETRY_TOO_LARGE, text)

    def _note_unread(self, instance: ClientInstance, reason: Exception) -> None:
        error = ApiError(ErrorCode.INVALID_RECORD, "The metrics cannot be read.")
        if isinstance(reason, OverflowError):
            error = self._too_large(instance.id)
        instance.unread = self._refusal(error)
        if self._told.is_due(error.code):
            log.warning(
                "client_metrics_unread",
                client=encode_id(instance.id),
                client_id=instance.attributes.get(CLIENT_ID),
                address=instance.attributes[SOURCE_ADDRESS],
                error=error.code.name,
                reason=str(reason),
            )

    def _refusal(self, error: ApiError) -> ApiError:
        self._refused[error.code.name] += 1
        return error


_RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")
"""Kafka's own."""


def _read_timed(push: WaitingPush, expanded_max: int) -> tuple[float, Reading | Exception]:
    """With the CPU time that it took, whether it succeeds or not."""
    began = time.thread_time()
    found: Reading | Exception
    try:
        data = push.metrics
        if push.codec != NONE:
            data = decompress(push.codec, data, expanded_max)
        found = read_metrics(data)
    except (ValueError, OverflowError, InvalidMetricsError) as error:
        found = error
    return time.thread_time() - began, found


def _too_early(instance_id: bytes) -> ApiError:
    name = encode_id(instance_id)
    text = f"Request from the client [{name}] arrived before the next push interval time"
    return ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)


def _exposed(instance: ClientInstance) -> ExposedClient:
    attributes = instance.attributes
    own = {name: shown_text(attributes.get(name, "")) for name in INFO_LABELS}
    told = {name: value for name, value in instance.pushed.client if name not in own}
    told.pop(CLIENT_INSTANCE_ID, None)
    info = tuple({**own, **told}.items())
    return ExposedClient(
        attributes[CLIENT_INSTANCE_ID], own[CLIENT_ID], info, instance.pushed.series
    )


def _now_ms() -> float:
    return trio.current_time() * 1000
