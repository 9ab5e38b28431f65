from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import trio

from pyrklog.admin import broker_loggers
from pyrklog.admin.config_changes import (
    NotYet,
    OptionOf,
    apply_incremental,
    broker_option,
    check_broker,
    check_kept,
    check_thread_counts,
    check_together,
    check_topic,
    replacement,
    topic_option,
)
from pyrklog.admin.topic_writes import store_error
from pyrklog.admin.underway import Underway
from pyrklog.base.logs import get_logger
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.topic_names import wrong_with_name
from pyrklog.config import client_metrics
from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import OF_EACH_LISTENER, without_listener
from pyrklog.config.entry import ConfigEntry, OptionType, Source, Synonym
from pyrklog.config.kafka_only import DEFAULTS, INTERNAL, KAFKA_ONLY
from pyrklog.config.option import READ_ONLY, Option
from pyrklog.config.topic import (
    RUN_TIME_ONLY,
    describe_broker_options,
    describe_topic_options,
)
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_TOPIC,
    STORE_AWAY,
    AlteredConfigs,
    ConfigAlteration,
    ConfigResource,
    DescribedConfigs,
)
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Metastore,
    MetastoreError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    Set,
)
from pyrklog.telemetry.subscriptions import RESOURCES_MAX, check_room, read_subscription

EFFECT_WAIT_SECONDS = 5.0
"""How long an answer waits for its change to take effect on this broker."""

SESSION_WAIT_SECONDS = 15.0
"""How long a change is retried after the end of its metadata store session."""

DESCRIBED_AT_ONCE = 256
"""Resources between checkpoints."""

log = get_logger("configs")

Change = Callable[[Mapping[str, str]], dict[str, str]]
"""Options before -> options after; raises :class:`ApiError`."""

_OPTIONS_OF: Mapping[int, OptionOf] = {
    RESOURCE_TOPIC: topic_option,
    RESOURCE_CLIENT_METRICS: client_metrics.OPTIONS.get,
}


class ConfigAdmin:
    def __init__(
        self, node_id: int, store: Metastore, metadata: Metadata, memory_bytes: int
    ) -> None:
        self._node_id = node_id
        self._memory_bytes = memory_bytes
        self._store = store
        self._metadata = metadata
        self._underway = Underway()

    async def describe(
        self,
        resources: Sequence[tuple[ConfigResource, AbstractSet[str] | None]],
    ) -> list[DescribedConfigs]:
        """See ``ClusterService.describe_configs``."""
        results = []
        for number, (resource, names) in enumerate(resources, 1):
            if number % DESCRIBED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                entries = await self._describe_one(resource, names)
            except ApiError as error:
                results.append(DescribedConfigs(resource, error.code, error.message, ()))
                continue
            results.append(DescribedConfigs(resource, ErrorCode.NONE, None, entries))
        return results

    async def _describe_one(
        self,
        resource: ConfigResource,
        names: AbstractSet[str] | None,
    ) -> list[ConfigEntry]:
        if resource.type == RESOURCE_BROKER_LOGGER:
            return broker_loggers.describe(self._node_id, resource.name, names)
        path = self._path(resource, is_change=False)
        options, _ = await self._read(path)
        if resource.type == RESOURCE_TOPIC:
            return describe_topic_options(
                options,
                self._metadata.defaults,
                names,
            )
        if resource.type == RESOURCE_CLIENT_METRICS:
            return client_metrics.describe_client_metrics(options, names)
        if resource.name:
            effective = describe_broker_options(
                self._metadata.config,
                names,
                node_id=self._node_id,
                memory_bytes=self._memory_bytes,
            )
            of_all, _ = await self._read(znodes.broker_config_path(znodes.DEFAULT_ENTITY))
            levels: list[tuple[Mapping[str, str], int]] = [
                (options, Source.DYNAMIC_BROKER),
                (of_all, Source.DYNAMIC_DEFAULT_BROKER),
            ]
            config = self._metadata.config
            given = {name: one.text for name, one in config.given.items()}
            defaults = dict(DEFAULTS)
            for name in OF_EACH_LISTENER:
                defaults[name] = config.candidates(name)[-1].text or ""
            levels += [(given, Source.STATIC_BROKER), (defaults, Source.DEFAULT)]
            shown = [name for level, _ in levels[:3] for name in level if name not in OPTIONS]
            shown += KAFKA_ONLY.keys() - INTERNAL
        else:
            effective = []
            levels = [(options, Source.DYNAMIC_DEFAULT_BROKER)]
            shown = list(options)
        if names is not None:
            shown = [name for name in shown if name in names]
        return effective + _describe_changed(levels, shown)

    def _path(self, resource: ConfigResource, *, is_change: bool) -> str:
        """The znode of a resource that this broker describes and alters. As in Kafka, only
        describing checks a topic's name: a topic that cannot exist cannot be changed."""
        if resource.type == RESOURCE_TOPIC:
            wrong = wrong_with_name(resource.name)
            if is_change and not resource.name:
                text = "Default topic resources are not allowed."
                raise ApiError(ErrorCode.INVALID_REQUEST, text)
            if wrong is not None and not is_change:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
            if resource.name not in self._metadata.image.topics:
                raise _unknown_topic(resource.name, is_change=is_change)
            return znodes.topic_config_path(resource.name)
        if resource.type == RESOURCE_CLIENT_METRICS:
            if not resource.name:
                text = "Client metrics subscription name must not be empty"
                text = "Subscription name can't be empty" if is_change else text
                raise ApiError(ErrorCode.INVALID_REQUEST, text)
            return znodes.client_metrics_path(resource.name)
        if resource.type != RESOURCE_BROKER:
            raise _unknown_type(resource)
        if not resource.name:
            return znodes.broker_config_path(znodes.DEFAULT_ENTITY)
        try:
            broker = int(resource.name)
        except ValueError:
            what = "Node" if is_change else "Broker"
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{what} id must be an integer, but it is: {resource.name}",
            ) from None
        if broker != self._node_id:
            expected = self._node_id if is_change else f"{self._node_id} or empty string"
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {expected}, but received {resource.name}",
            )
        return znodes.broker_config_path(str(broker))

    async def _read(self, path: str) -> tuple[dict[str, str], int | None]:
        """The options at a path and their version, None without a node."""
        try:
            node = await self._store.get(path)
        except NoNodeError:
            return {}, None
        try:
            return znodes.decode_config(path, node.data), node.stat.version
        except znodes.ZnodeError as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{error}.") from None

    async def alter_incrementally(
        self,
        alterations: Sequence[tuple[ConfigResource, Sequence[ConfigAlteration]]],
        *,
        validate_only: bool,
    ) -> list[AlteredConfigs]:
        """See ``ClusterService.incremental_alter_configs``."""

        def change_of(resource: ConfigResource, items: Sequence[ConfigAlteration]) -> Change:
            if resource.type == RESOURCE_BROKER_LOGGER:
                return partial(self._change_levels, resource.name, items, validate_only)
            option_of = _OPTIONS_OF.get(resource.type, broker_option)
            return lambda before: apply_incremental(before, items, option_of)

        changes = [(resource, change_of(resource, items)) for resource, items in alterations]
        return await self._alter_all(changes, validate_only)

    def _change_levels(
        self,
        broker: str,
        items: Sequence[ConfigAlteration],
        validate_only: bool,
        _before: Mapping[str, str],
    ) -> dict[str, str]:
        broker_loggers.alter(self._node_id, broker, items, validate_only=validate_only)
        return {}

    async def alter_fully(
        self,
        replacements: Sequence[tuple[ConfigResource, Mapping[str, str | None]]],
        *,
        validate_only: bool,
    ) -> list[AlteredConfigs]:
        """See ``ClusterService.alter_configs``."""

        def change_of(resource: ConfigResource, options: Mapping[str, str | None]) -> Change:
            def change(_before: Mapping[str, str]) -> dict[str, str]:
                if resource.type == RESOURCE_BROKER_LOGGER:
                    raise _unknown_type(resource)
                return replacement(options)

            return change

        changes = [(resource, change_of(resource, options)) for resource, options in replacements]
        return await self._alter_all(changes, validate_only)

    async def _alter_all(
        self, changes: Sequence[tuple[ConfigResource, Change]], validate_only: bool
    ) -> list[AlteredConfigs]:
        alter = partial(self._alter_each, changes, validate_only)
        results, announced = await self._underway.finish(alter)
        if announced:
            with trio.move_on_after(EFFECT_WAIT_SECONDS):
                await self._metadata.changes.wait_until(
                    lambda: all(map(self._metadata.followed, announced))
                )
        return results

    async def _alter_each(
        self, changes: Sequence[tuple[ConfigResource, Change]], validate_only: bool
    ) -> tuple[list[AlteredConfigs], list[str]]:
        results = []
        announced = []
        named = Counter(resource for resource, _ in changes)
        retry_until = trio.current_time() + SESSION_WAIT_SECONDS
        for resource, change in changes:
            try:
                if named[resource] > 1:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                    )
                path = await self._alter_one(resource, change, validate_only, retry_until)
            except ApiError as error:
                results.append(AlteredConfigs(resource, error.code, error.message))
                continue
            if path is not None:
                announced.append(path)
            results.append(AlteredConfigs(resource, ErrorCode.NONE))
        return results, announced

    async def _alter_one(
        self, resource: ConfigResource, change: Change, validate_only: bool, retry_until: float
    ) -> str | None:
        """Writes and announces; returns the path of the announcement.

        After the end of its session, a change is repeated in the next one: it may have happened,
        and repeating it is harmless. Clients retry no code of this request.
        """
        if resource.type == RESOURCE_BROKER_LOGGER:
            change({})  # levels are the process's, not the store's
            return None
        while True:
            try:
                return await self._try_to_alter(resource, change, validate_only)
            except NoNodeError as error:
                if error.path == znodes.topic_path(resource.name):
                    raise _unknown_topic(resource.name) from None  # the image has not followed yet
                continue
            except (BadVersionError, NodeExistsError):
                continue  # somebody else changed the options: retry
            except SessionExpiredError:
                if trio.current_time() >= retry_until:
                    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, STORE_AWAY) from None
            except MetastoreError as error:
                raise store_error(error) from None

    async def _try_to_alter(
        self, resource: ConfigResource, change: Change, validate_only: bool
    ) -> str | None:
        path = self._path(resource, is_change=True)
        if resource.type == RESOURCE_CLIENT_METRICS:
            return await self._try_to_alter_metrics(path, resource.name, change, validate_only)
        before, version = await self._read(path)
        operations: list[Operation] = []
        not_yet = NotYet([], [], [])
        after = change(before)
        if resource.type == RESOURCE_TOPIC:
            check_topic(after, self._metadata.defaults)
            entity = f"topics/{resource.name}"
            # A topic deleted meanwhile leaves no options behind.
            operations.append(Check(znodes.topic_path(resource.name), ANY_VERSION))
        else:
            for_all = not resource.name
            not_yet = check_broker(after, before, for_all=for_all)
            check_thread_counts(self._metadata.config, before, after, for_all=for_all)
            check_together(self._metadata.config, after, for_all=for_all)
            entity = f"brokers/{resource.name or znodes.DEFAULT_ENTITY}"
        if validate_only:
            return None
        check_kept(not_yet)
        data = znodes.encode_config(after)
        operations.append(Create(path, data) if version is None else Set(path, data, version))
        announced = await self._write(operations, entity)
        if not_yet.without_effect:
            log.warning(
                "options_without_effect", options=not_yet.without_effect[:10], entity=entity
            )
        if not_yet.at_start:
            log.warning("options_act_at_start", options=not_yet.at_start[:10], entity=entity)
        return announced

    async def _try_to_alter_metrics(
        self, path: str, name: str, change: Change, validate_only: bool
    ) -> str | None:
        """A subscription exists as long as it has options, as in Kafka."""
        before, version = await self._read(path)
        after = change(before)
        kept = self._metadata.client_metrics.options
        others = [options for other, options in kept.items() if other != name]
        check_room(before, read_subscription(name, after), others)
        if version is None and after:
            await self._check_room()
        if validate_only or (version is None and not after):
            return None
        operation: Operation
        if version is None:
            operation = Create(path, znodes.encode_config(after))
        elif after:
            operation = Set(path, znodes.encode_config(after), version)
        else:
            operation = Delete(path, version)
        entity = f"client-metrics/{path.rpartition('/')[2]}"
        return await self._write([operation], entity)

    async def _check_room(self) -> None:
        if len(await self._store.children(znodes.CONFIG_CLIENT_METRICS)) >= RESOURCES_MAX:
            text = f"There are {RESOURCES_MAX} client metrics subscriptions, as many as may be."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)

    async def _write(self, operations: Sequence[Operation], entity: str) -> str:
        """Writes and announces; returns the path of the announcement."""
        announcement = znodes.encode_config_change(entity)
        created = Create(znodes.CONFIG_CHANGE_PREFIX, announcement, sequence=True)
        announced = (await self._store.multi([*operations, created]))[-1]
        assert isinstance(announced, str)
        return announced


def _unknown_type(resource: ConfigResource) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")


def _unknown_topic(name: str, *, is_change: bool = True) -> ApiError:
    """As in Kafka, only a change is answered with a message."""
    text = f"The topic '{name}' does not exist." if is_change else ""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _is_shown_as_read_only(name: str, option: Option | None) -> bool:
    """As in Kafka also where a prefix names a listener, although that may be altered."""
    if option is None or name in RUN_TIME_ONLY or without_listener(name) is not None:
        return True
    return option.update_mode == READ_ONLY


def _describe_changed(
    levels: Sequence[tuple[Mapping[str, str], int]],
    names: Collection[str],
) -> list[ConfigEntry]:
    """Options without effect, or of one listener: ``levels`` of (options, source), strongest first.

    As in Kafka: unknown options may be secret; options with a listener's prefix fall back to the
    name without it.
    """
    entries = []
    for name in sorted(set(names)):
        option = broker_option(name) or KAFKA_ONLY.get(name)
        base = without_listener(name)
        synonyms = [
            Synonym(one, options[one], source)
            for options, source in levels
            for one in (name, base)
            if one is not None and one in options
        ]
        entries.append(
            ConfigEntry(
                name=name,
                value=next((one.value for one in synonyms if one.name == name), None),
                read_only=_is_shown_as_read_only(name, option),
                source=synonyms[0].source if synonyms else Source.DEFAULT,
                sensitive=option is None or option.is_secret,
                synonyms=synonyms,
                type=option.type if option else OptionType.UNKNOWN,
                documentation=option.documentation if option else None,
            )
        )
    return entries
