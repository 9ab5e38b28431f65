"""Options of topics, brokers and client metrics as the cluster has them: read, changed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.cluster_requests import (
    Address,
    ClusterRequests,
    NotServedError,
    broker_addresses,
    error_code,
    refused,
)
from pyrklog.cli.config_effect import broker_option, default_of
from pyrklog.cli.config_kinds import ALL_BROKERS, OF_ONE_BROKER, Kind
from pyrklog.cli.config_loggers import level_after, like_or_all, with_inherited
from pyrklog.cli.connection import missing_topic
from pyrklog.cli.failures import CliError
from pyrklog.cli.option_advice import like_option, like_or_listed
from pyrklog.cli.options import Settings
from pyrklog.config.dynamic import LISTENER_PREFIX
from pyrklog.config.entry import OptionType, Source
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.telemetry import (
    LIST_CLIENT_METRICS_RESOURCES,
    ListClientMetricsResourcesRequest,
)

RESOURCES_MAX = 100
"""Resources of one request: an answer has every option of each."""


class Operation(NamedTuple):
    """``number``: SET 0, DELETE 1, APPEND 2, SUBTRACT 3 (KIP-339)."""

    option: str
    value: str | None
    number: int

    @property
    def is_of_list(self) -> bool:
        return self.number in (APPEND, SUBTRACT)


SET, DELETE, APPEND, SUBTRACT = range(4)
_TYPES = {Kind.TOPIC: 2, Kind.BROKER: 4, Kind.BROKER_LOGGERS: 8, Kind.CLIENT_METRICS: 16}
_ONLY_OURS = "pyrklog.data.dir"
_SOURCES = {
    1: "topic",
    2: "dynamic-broker",
    3: "dynamic-default-broker",
    4: "static-broker",
    5: "default",
    6: "dynamic-broker-logger",
    7: "client-metrics",
    8: "group",
}
_TOLD_WHILE_SET = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Brokers' options of Kafka's ``DynamicConfig``; those of one listener are told so, too."""
_UNITS_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}
_VALUE_TYPES = {one.value: one.name.lower() for one in OptionType}


class Entry(NamedTuple):
    """An option of a resource.

    ``unset`` is the value that counts without the resource's own; None if brokers do not tell it,
    as of options whose default another option gives. ``default`` is that of a topic if brokers tell
    it; else, and for brokers, the value that nobody set.
    """

    name: str
    value: str | None
    source: str
    unset: str | None
    default: str | None
    type: str
    is_hidden: bool
    read_only: bool
    documentation: str | None
    synonyms: Sequence[DescribeConfigsSynonym]

    def item(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "source": self.source,
            "default": self.default,
            "sensitive": self.is_hidden,
            "read_only": self.read_only,
            "type": self.type,
            "documentation": self.documentation,
            "synonyms": [
                {"name": one.name, "value": one.value, "source": source(one.source)}
                for one in self.synonyms
            ],
            "why": self.why,
        }

    @property
    def why(self) -> str:
        """The values that were given, the one that counts first."""
        shown = (f"{one.name}={one.value} ({source(one.source)})" for one in self.synonyms)
        return "" if self.is_hidden else ", ".join(shown)

    @property
    def shown(self) -> str:
        return "(hidden)" if self.is_hidden else _shown(self.value)


def source(number: int) -> str:
    return _SOURCES.get(number, str(number))


class ConfigAdmin:
    def __init__(self, requests: ClusterRequests, kind: Kind) -> None:
        self._requests = requests
        self._kind = kind
        metadata = requests.metadata(())
        self.cluster_id = metadata.cluster_id
        self._brokers = broker_addresses(metadata)

    @property
    def broker_names(self) -> list[str]:
        return [str(number) for number in sorted(self._brokers)]

    @property
    def brokers_alive(self) -> str:
        """For the fix of an error."""
        return f"brokers alive: {', '.join(self.broker_names)}"

    def is_pyrklog(self) -> bool | None:
        """Whether a broker has an option that no other Kafka has; None if it does not answer."""
        if not self._brokers:
            return None
        number, address = min(self._brokers.items())
        asked = DescribeConfigsResource(_TYPES[Kind.BROKER], str(number), [_ONLY_OURS])
        try:
            told = self._ask(address, DescribeConfigsRequest([asked]))
        except CliError:
            return None
        if not told or any(result.error_code for result in told):
            return None
        return any(one.name == _ONLY_OURS for result in told for one in result.configs)

    def subscriptions(self) -> list[str]:
        """Names of all client metrics. Raises :class:`CliError`."""
        told = self._requests.ask_any(
            LIST_CLIENT_METRICS_RESOURCES, ListClientMetricsResourcesRequest()
        )
        code = error_code(told.error_code)
        if code is not ErrorCode.NONE:
            raise refused("client metrics", code)
        return [one.name for one in told.client_metrics_resources]

    def refuse_missing(self, names: Iterable[str]) -> None:
        """Raises :class:`CliError` for a subscription that does not exist: brokers answer with the
        defaults."""
        if self._kind is not Kind.CLIENT_METRICS:
            return
        try:
            known = self.subscriptions()
        except NotServedError:
            return  # of a Kafka that cannot list them
        missing = next((name for name in names if name not in known), None)
        if missing is not None:
            raise CliError(
                Problem.OPTION_NOT_FOUND,
                f"there is no subscription {missing} to client metrics",
                like_option([missing], known)
                or "`pyrklog config describe client-metrics` shows all there are",
            )

    def describe(self, names: Sequence[str], options: Sequence[str] = ()) -> dict[str, list[Entry]]:
        """Options (empty: all) of resources, by name. Raises :class:`CliError`."""
        found: dict[str, list[Entry]] = {}
        for address, chunk in self._addressed(names):
            resources = [
                DescribeConfigsResource(
                    _TYPES[self._kind], self._on_wire(name), list(options) or None
                )
                for name in chunk
            ]
            request = DescribeConfigsRequest(
                resources, include_synonyms=True, include_documentation=True
            )
            for one in self._ask(address, request):
                name = one.resource_name or ALL_BROKERS
                code = error_code(one.error_code)
                if code is not ErrorCode.NONE:
                    raise self._refusal(name, code, one.error_message)
                entries = [entry_of(self._kind, name, entry) for entry in one.configs]
                if self._kind is Kind.BROKER_LOGGERS:
                    entries = with_inherited(entries)
                found[name] = sorted(entries, key=lambda entry: entry.name)
        for name in names:
            if name not in found:
                raise CliError(
                    Problem.BROKER_REFUSED, f"a broker does not answer about {self._kind} {name}"
                )
        return {name: found[name] for name in names}

    def alter(
        self, names: Sequence[str], operations: Sequence[Operation], *, dry_run: bool
    ) -> dict[str, CliError | None]:
        """Changes options of each resource; returns the errors."""
        changes = [IncrementalConfig(one.option, one.number, one.value) for one in operations]
        results: dict[str, CliError | None] = {}
        for address, chunk in self._addressed(names):
            resources = [
                IncrementalAlterConfigsResource(_TYPES[self._kind], self._on_wire(name), changes)
                for name in chunk
            ]
            request = IncrementalAlterConfigsRequest(resources, validate_only=dry_run)
            told = self._alter(address, request)
            for one in told.responses:
                name = one.resource_name or ALL_BROKERS
                code = error_code(one.error_code)
                results[name] = None
                if code is not ErrorCode.NONE:
                    results[name] = self._refusal(name, code, one.error_message)
        return results

    def _ask(
        self, address: Address | None, request: DescribeConfigsRequest
    ) -> list[DescribeConfigsResult]:
        if address is None:
            return self._requests.ask_any(DESCRIBE_CONFIGS, request).results
        return self._requests.ask(address, DESCRIBE_CONFIGS, request).results

    def _alter(
        self, address: Address | None, request: IncrementalAlterConfigsRequest
    ) -> AlterConfigsResponse:
        if address is None:
            return self._requests.ask_any(INCREMENTAL_ALTER_CONFIGS, request)
        return self._requests.ask(address, INCREMENTAL_ALTER_CONFIGS, request)

    def _addressed(self, names: Sequence[str]) -> Iterable[tuple[Address | None, Sequence[str]]]:
        """Whom to ask for which resources: a broker's own options only itself (None: any)."""
        names = list(dict.fromkeys(names))
        of_one = self._kind in OF_ONE_BROKER
        of_all = ALL_BROKERS if self._kind is Kind.BROKER else None
        own = [name for name in names if of_one and name != of_all]
        for name in own:
            yield self._address(name), [name]
        others = [name for name in names if name not in own]
        for start in range(0, len(others), RESOURCES_MAX):
            yield None, others[start : start + RESOURCES_MAX]

    def _on_wire(self, name: str) -> str:
        return "" if self._kind is Kind.BROKER and name == ALL_BROKERS else name

    def _address(self, name: str) -> Address:
        number = int(name) if name.isascii() and name.isdecimal() and len(name) < 11 else -1
        if str(number) != name:
            or_all = f", or {ALL_BROKERS}" if self._kind is Kind.BROKER else ""
            what = f"a broker's name is its number{or_all}, not {name!r}"
            raise CliError(Problem.ARGUMENT_VALUE, what, self.brokers_alive)
        if number not in self._brokers:
            what = f"no broker {number} is alive"
            raise CliError(Problem.BROKER_NOT_FOUND, what, self.brokers_alive)
        return self._brokers[number]

    def _refusal(self, name: str, code: ErrorCode, message: str | None) -> CliError:
        if self._kind is Kind.TOPIC and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return missing_topic(name, [one.name for one in self._requests.metadata().topics])
        about = f"{self._kind} {name}"
        if self._kind is Kind.CLIENT_METRICS and "resource type" in (message or "").lower():
            what = f"{about}: this broker has no client metrics (KIP-714)"
            return CliError(Problem.NOT_SERVED, what, "Kafka without ZooKeeper has them since 3.7")
        if code is ErrorCode.INVALID_REQUEST:
            return CliError(Problem.OPTION_NOT_CHANGED, f"{about}: {message or code.message}")
        return refused(about, code, message)


def refuse_others(settings: Settings, fix: str) -> None:
    """Raises :class:`CliError` where brokers answer that are not ours, for what only ours know."""
    with ClusterRequests(settings) as requests:
        if ConfigAdmin(requests, Kind.BROKER).is_pyrklog() is False:
            what = f"the brokers at {settings.bootstrap} are not pyrklog's, and cannot tell this"
            raise CliError(Problem.NOT_PYRKLOG, what, fix)


def _own_source(kind: Kind, name: str) -> int:
    """The source of values that were set on the resource itself at run time."""
    if kind is Kind.BROKER:
        return Source.DYNAMIC_DEFAULT_BROKER if name == ALL_BROKERS else Source.DYNAMIC_BROKER
    return {
        Kind.TOPIC: Source.TOPIC,
        Kind.BROKER_LOGGERS: Source.DYNAMIC_BROKER_LOGGER,
        Kind.CLIENT_METRICS: Source.CLIENT_METRICS,
    }[kind]


def entry_of(kind: Kind, name: str, one: DescribeConfigsResourceResult) -> Entry:
    """An option of the resource ``name`` from a broker's answer."""
    own = _own_source(kind, name)
    weaker = [synonym for synonym in one.synonyms if synonym.source > own]
    unset = _in_unit_of(one.name, weaker[0]) if weaker else None
    unset = unset if one.config_source == own else one.value
    default = _default_of(kind, one)
    if kind is Kind.TOPIC and unset is not None:
        default = unset
    return Entry(
        name=one.name,
        value=one.value,
        source=source(one.config_source),
        unset=unset,
        default=default,
        type=_VALUE_TYPES.get(one.config_type, "unknown"),
        is_hidden=one.is_sensitive,
        read_only=one.read_only,
        documentation=one.documentation,
        synonyms=one.synonyms,
    )


def _default_of(kind: Kind, one: DescribeConfigsResourceResult) -> str | None:
    """The value that nobody set. Brokers do not tell it of every topic option that was set; there
    it is Kafka's."""
    if one.config_source == Source.DEFAULT:
        return one.value
    for synonym in one.synonyms:
        if synonym.source == Source.DEFAULT:
            return _in_unit_of(one.name, synonym)
    if kind is not Kind.TOPIC:
        return None
    from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

    known = TOPIC_OPTIONS_BY_NAME.get(one.name)
    return None if known is None else known.option.format(known.option.default)


def _in_unit_of(name: str, synonym: DescribeConfigsSynonym) -> str | None:
    """A synonym's value in the option's own unit: ``log.retention.hours`` is one of
    ``retention.ms``."""
    own, other = (_UNITS_MS.get(one.rpartition(".")[2]) for one in (name, synonym.name))
    if synonym.value is None or own is None or other is None or own == other:
        return synonym.value
    # Less than 0 is no time, but without end.
    number = int(synonym.value)
    return str(number * other // own if number > 0 else number)


def _shown(value: str | None) -> str:
    return "-" if value is None else value


def with_unset(name: str, entries: Sequence[Entry], asked: Iterable[str] | None) -> list[Entry]:
    """Also those asked for that brokers have, but tell only while they are set."""
    told = {one.name for one in entries}
    added = (_unset(option) for option in asked or () if option not in told)
    return [*entries, *(one for one in added if one is not None and name != ALL_BROKERS)]


def _unset(name: str) -> Entry | None:
    is_listeners = name.startswith(LISTENER_PREFIX)
    option = broker_option(name) if is_listeners or name in _TOLD_WHILE_SET else None
    if option is None:
        return None
    default = option.format(option.default)
    return Entry(
        name=name,
        value=default,
        source=source(Source.DEFAULT),
        unset=default,
        default=default,
        type=option.type_name,
        is_hidden=option.is_secret,
        read_only=False,
        documentation=option.documentation,
        synonyms=(),
    )


def altered_lines(
    kind: Kind,
    name: str,
    before: Mapping[str, Entry],
    operations: Sequence[Operation],
    remarks: Mapping[str, str],
) -> list[str]:
    """``topic orders: retention.ms 1000 -> 2000``, for each operation; ``remarks`` by option."""
    lines = []
    for one in operations:
        known = before.get(one.option)
        old = "-" if known is None else known.shown
        if one.number == SET:
            new = "(hidden)" if known is not None and known.is_hidden else _shown(one.value)
        elif one.number == DELETE:
            new = _value_unset(kind, one.option, before, operations)
        else:
            had = _list_before(kind, name, one.option, known)
            new = _with_items(had, one.value or "", is_added=one.number == APPEND)
        remark = f" ({remarks[one.option]})" if one.option in remarks else ""
        lines.append(f"{kind} {name}: {one.option} {old or '-'} -> {new or '-'}{remark}")
    if kind is Kind.CLIENT_METRICS and not _is_left(before, operations):
        lines.append(f"{kind} {name}: no option is set any more, so the subscription is gone")
    return lines


def _value_unset(
    kind: Kind, option: str, before: Mapping[str, Entry], operations: Sequence[Operation]
) -> str:
    """The value that counts once the resource's own is taken away, for people."""
    if kind is Kind.BROKER_LOGGERS:
        return level_after(option, before, operations)
    if kind is Kind.CLIENT_METRICS:  # Kafka's brokers have the same ones, and tell none
        return default_of(kind, option) or "-"
    known = before.get(option)
    return "default" if known is None or known.unset is None else known.unset


def _is_left(before: Mapping[str, Entry], operations: Sequence[Operation]) -> bool:
    """Whether a subscription has an option of its own afterwards: else brokers remove it."""
    own = source(Source.CLIENT_METRICS)
    names = {one.name for one in before.values() if one.source == own}
    names -= {one.option for one in operations if one.number == DELETE}
    return bool(names) or any(one.number != DELETE for one in operations)


def _list_before(kind: Kind, name: str, option: str, known: Entry | None) -> str | None:
    """What brokers add to and take from. As Kafka's, they begin with the default of the option's
    definition where the resource has no value of its own, whatever a broker's file says."""
    own = source(_own_source(kind, name))
    if known is not None and known.source == own:
        return known.value
    default = default_of(kind, option)
    return default if default is not None or known is None else known.value


def _with_items(value: str | None, items: str, *, is_added: bool) -> str:
    had = [item.strip() for item in (value or "").split(",") if item.strip()]
    given = [item.strip() for item in items.split(",") if item.strip()]
    if is_added:
        return ",".join([*had, *(item for item in given if item not in had)])
    return ",".join(item for item in had if item not in given)


def refuse_unknown(
    kind: Kind, name: str, operations: Sequence[Operation], before: Mapping[str, Entry]
) -> None:
    """Refuses to reset an unknown option, which brokers would silently accept. All brokers'
    options are known only once they are set, and so are some of one broker."""
    if name == ALL_BROKERS and kind is Kind.BROKER:
        return
    for one in operations:
        if kind is Kind.BROKER and _unset(one.option) is not None:
            continue
        if one.number == DELETE and one.option not in before:
            what = f"{kind} {name} has no option {one.option}"
            fix = like_or_listed(one.option, list(before), kind.value, name)
            if kind is Kind.BROKER_LOGGERS:
                fix = like_or_all([one.option], list(before), name)
            raise CliError(Problem.OPTION_NOT_CHANGED, what, fix)
