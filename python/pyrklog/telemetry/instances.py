"""Client instances, and when each may ask and push. Pure: times are arguments, in milliseconds.

As in Kafka: a client asks for its subscription at most once in a push interval, and pushes once in
it. It may push right after it has asked, since clients spread their first push over half to one and
a half intervals. The last push of a client that ends may come at any time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from pyrklog.errors import ApiError, ErrorCode
from pyrklog.telemetry.series import Pushed
from pyrklog.telemetry.subscriptions import Attributes, Terms

INSTANCES_MAX = 16_384
"""Kafka's number. Beyond it the instance that was heard of longest ago is forgotten."""
INSTANCES_OF_ADDRESS_MAX = INSTANCES_MAX // 2
"""Beyond it the address's own is forgotten: one address cannot make the broker forget all."""
EXPIRY_MS = 60_000
EXPIRY_INTERVALS = 3
"""An instance that is silent for the longer of both is forgotten; of one that pushes nothing for so
long, the series are."""
SWEEP_MS = 10_000
ASKS_AGAIN_AFTER = frozenset(
    (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
)
"""A client that gets these is to ask for its subscription at once."""


@dataclass(slots=True)
class ClientInstance:
    id: bytes
    attributes: Attributes
    """As when the instance was first heard of."""
    terms: Terms
    subscription_id: int
    version: int
    """Of the subscriptions that the terms come from."""
    address: str
    """Of its host, or of its network where a host has many (IPv6)."""
    last_error: ErrorCode = ErrorCode.NONE
    """Of the answer to its last push."""
    unread: ApiError | None = None
    """Why a push could not be read after its answer; the next one is refused with it."""
    is_terminating: bool = False
    expires_ms: float = 0.0
    pushed: Pushed = field(default_factory=Pushed)
    """What is exposed of its pushes."""
    round: int = 0
    """Grows when pushes that were taken before no longer count."""
    taken_ms: float = -inf
    """When its last push was taken."""
    _asked_ms: float = -inf
    _pushed_ms: float = -inf

    def renew(self, terms: Terms, subscription_id: int, version: int) -> None:
        """The subscriptions have changed: it may ask and push at once. Where its own terms have,
        what waits to be read counts no longer."""
        if terms != self.terms:
            self.round += 1
        self.terms, self.subscription_id, self.version = terms, subscription_id, version
        self.last_error, self.unread, self.is_terminating = ErrorCode.NONE, None, False
        self._asked_ms = self._pushed_ms = -inf

    @property
    def silent_ms_max(self) -> float:
        return max(EXPIRY_MS, EXPIRY_INTERVALS * self.terms.interval_ms)

    def has_old_series(self, now_ms: float) -> bool:
        is_shown = bool(self.pushed.series or self.pushed.left_out)
        return is_shown and now_ms - self.taken_ms >= self.silent_ms_max

    def may_ask(self, now_ms: float) -> bool:
        """Counts the question if it may."""
        may = now_ms - max(self._asked_ms, self._pushed_ms) >= self.terms.interval_ms
        may = may or self.last_error in ASKS_AGAIN_AFTER
        if may:
            self._asked_ms = now_ms
        return may

    def may_push(self, now_ms: float) -> bool:
        """Counts the push if it may."""
        may = self._asked_ms > self._pushed_ms
        may = may or now_ms - self._pushed_ms >= self.terms.interval_ms
        if may:
            self._pushed_ms = now_ms
        return may


class Instances:
    """Those that were heard of lately, the longest ago first."""

    def __init__(self) -> None:
        self._all: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._by_address: dict[str, OrderedDict[bytes, ClientInstance]] = {}
        self._swept_ms = -inf

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(self._all.values())

    def __contains__(self, instance: ClientInstance) -> bool:
        return self._all.get(instance.id) is instance

    def get(self, instance_id: bytes) -> ClientInstance | None:
        return self._all.get(instance_id)

    def touch(self, instance: ClientInstance, now_ms: float) -> list[ClientInstance]:
        """Adds it, or notes that it was heard of. Returns those whose series are to be forgotten
        now."""
        instance.expires_ms = now_ms + instance.silent_ms_max
        own = self._by_address.setdefault(instance.address, OrderedDict())
        for each in (self._all, own):
            each[instance.id] = instance
            each.move_to_end(instance.id)
        forgotten = self.expire(now_ms) if now_ms - self._swept_ms >= SWEEP_MS else []
        if len(own) > INSTANCES_OF_ADDRESS_MAX:
            forgotten.append(self._forget(next(iter(own.values()))))
        if len(self._all) > INSTANCES_MAX:
            forgotten.append(self._forget(next(iter(self._all.values()))))
        return forgotten

    def _forget(self, instance: ClientInstance) -> ClientInstance:
        del self._all[instance.id]
        own = self._by_address[instance.address]
        del own[instance.id]
        if not own:
            del self._by_address[instance.address]
        return instance

    def expire(self, now_ms: float) -> list[ClientInstance]:
        """Forgets those that were silent for too long. Returns them, and those that only ask, and
        have pushed nothing for so long: the series of all of these are to be forgotten."""
        self._swept_ms = now_ms
        expired = [one for one in self._all.values() if one.expires_ms <= now_ms]
        for one in expired:
            self._forget(one)
        return expired + [one for one in self._all.values() if one.has_old_series(now_ms)]
