from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import dropwhile

from pyrklog.config.broker import (
    NODE_ID_NAMES,
    OPTIONS,
    BrokerConfig,
    Candidate,
    defaults_by_memory,
)
from pyrklog.config.entry import ConfigEntry, Source, Synonym
from pyrklog.config.log_options import TOPIC_OPTIONS, Fallback, TopicOption
from pyrklog.config.option import (
    LONG_MAX,
    READ_ONLY,
    InvalidValueError,
    Option,
    Value,
)
from pyrklog.config.resolved import LogConfig, ResolvedTopic, Throttled

TOPIC_OPTIONS_BY_NAME: Mapping[str, TopicOption] = {
    item.option.name: item for item in TOPIC_OPTIONS
}
RUN_TIME_ONLY = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Broker options that exist in Kafka only once set at run time. They are shown only then, and as
read-only, although they may be altered."""
_NOT_WITH_ZOOKEEPER = ("remote.log.copy.disable", "remote.log.delete.on.disable")
_OLDER_TIMESTAMP_BOUND = "log.message.timestamp.difference.max.ms"
_NEWER_TIMESTAMP_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
OWN_PREFIX = "pyrklog."
"""Options that Kafka lacks: shown only where set."""


def check_topic_options(
    overrides: Mapping[str, str | None], defaults: TopicDefaults | None = None
) -> None:
    """As Kafka's ``LogConfig.validate``. ``defaults`` are what holds where nothing is overridden;
    without them each option has the default of its definition.

    Raises :class:`InvalidValueError` for an unknown name, a null, a wrong value, or values that do
    not go together.
    """
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise InvalidValueError(f"Null value not supported for topic configs: {','.join(nulls)}")
    for name in overrides:
        if name not in TOPIC_OPTIONS_BY_NAME:
            raise InvalidValueError(f"Unknown topic config name: {name}")
    parsed = {
        name: TOPIC_OPTIONS_BY_NAME[name].option.parse(text)
        for name, text in overrides.items()
        if text is not None
    }
    least, most = (
        _compaction_lag_ms(f"{which}.compaction.lag.ms", parsed, defaults)
        for which in ("min", "max")
    )
    if least > most:
        raise InvalidValueError(
            "conflict topic config setting min.compaction.lag.ms "
            f"({least}) > max.compaction.lag.ms ({most})"
        )
    is_with_zookeeper = defaults is not None and defaults.broker.zookeeper is not None
    if is_with_zookeeper and any(parsed.get(name) is True for name in _NOT_WITH_ZOOKEEPER):
        raise InvalidValueError(
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` "
            "under Zookeeper's mode."
        )
    if parsed.get("remote.storage.enable") is True:
        raise InvalidValueError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )


def _compaction_lag_ms(
    name: str, parsed: Mapping[str, Value], defaults: TopicDefaults | None
) -> int:
    value = parsed.get(name)
    if value is None:
        option = TOPIC_OPTIONS_BY_NAME[name].option
        value = option.default if defaults is None else defaults.value(name)
    assert isinstance(value, int), name
    return value


class TopicDefaults:
    """Topic options without overrides, computed once for a :class:`BrokerConfig`."""

    def __init__(self, broker: BrokerConfig) -> None:
        self.broker = broker
        self._values = {
            name: _default(item, broker) for name, item in TOPIC_OPTIONS_BY_NAME.items()
        }
        self._plain = self._build({})
        self._synonyms: dict[str, Sequence[Synonym]] = {}

    def resolve(self, overrides: Mapping[str, str]) -> ResolvedTopic:
        """The options of a topic; unreadable overrides fall back to the default."""
        if not overrides:
            return self._plain
        parsed: dict[str, Value] = {}
        for name, text in overrides.items():
            known = TOPIC_OPTIONS_BY_NAME.get(name)
            if known is None:
                continue
            try:
                parsed[name] = known.option.parse(text)
            except InvalidValueError:
                continue
        return self._build(parsed)

    def value(self, name: str) -> Value:
        return self._values[name]

    def synonyms(self, name: str) -> Sequence[Synonym]:
        """The broker's values of the default, the strongest first."""
        found = self._synonyms.get(name)
        if found is None:
            fallbacks = TOPIC_OPTIONS_BY_NAME[name].fallbacks
            found = _broker_synonyms(fallbacks[0].name, self.broker) if fallbacks else []
            self._synonyms[name] = found
        return found

    def _build(self, parsed: Mapping[str, Value]) -> ResolvedTopic:
        values = {**self._values, **parsed}

        def integer(name: str) -> int:
            value = values[name]
            assert isinstance(value, int), name
            return value

        cleanup = values["cleanup.policy"]
        assert isinstance(cleanup, tuple)
        log = LogConfig(
            segment_bytes=integer("segment.bytes"),
            segment_ms=integer("segment.ms"),
            segment_jitter_ms=min(integer("segment.jitter.ms"), integer("segment.ms")),
            segment_index_bytes=integer("segment.index.bytes"),
            index_interval_bytes=integer("index.interval.bytes"),
            max_message_bytes=integer("max.message.bytes"),
            message_timestamp_type=str(values["message.timestamp.type"]),
            message_timestamp_before_max_ms=self._timestamp_bound("before", values, parsed),
            message_timestamp_after_max_ms=self._timestamp_bound("after", values, parsed),
            compression_type=str(values["compression.type"]),
            compression_gzip_level=integer("compression.gzip.level"),
            compression_lz4_level=integer("compression.lz4.level"),
            compression_zstd_level=integer("compression.zstd.level"),
            message_downconversion_enable=values["message.downconversion.enable"] is True,
            flush_messages=integer("flush.messages"),
            flush_ms=integer("flush.ms"),
            retention_ms=integer("retention.ms"),
            retention_bytes=integer("retention.bytes"),
            file_delete_delay_ms=integer("file.delete.delay.ms"),
            cleanup_delete="delete" in cleanup,
            cleanup_compact="compact" in cleanup,
            delete_retention_ms=integer("delete.retention.ms"),
            min_cleanable_dirty_ratio=_number(values["min.cleanable.dirty.ratio"]),
            min_compaction_lag_ms=integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=integer("max.compaction.lag.ms"),
        )
        unclean = values["unclean.leader.election.enable"] is True
        throttled = Throttled(
            leading=_replicas(values["leader.replication.throttled.replicas"]),
            following=_replicas(values["follower.replication.throttled.replicas"]),
        )
        return ResolvedTopic(log, integer("min.insync.replicas"), unclean, throttled)

    def _timestamp_bound(
        self, side: str, values: Mapping[str, Value], parsed: Mapping[str, Value]
    ) -> int:
        # KIP-937: the older single bound counts if the newer one has its default.
        newer = values[f"message.timestamp.{side}.max.ms"]
        older = values["message.timestamp.difference.max.ms"]
        chosen = newer if newer != LONG_MAX else older
        assert isinstance(chosen, int)
        return chosen


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _replicas(value: Value) -> Sequence[tuple[int, int]] | None:
    """(partition, broker) of a checked list; None for ``*``."""
    assert isinstance(value, tuple)
    if value == ("*",):
        return None
    pairs = (item.split(":") for item in value)
    return tuple((int(partition), int(broker)) for partition, broker in pairs)


def _default(item: TopicOption, broker: BrokerConfig) -> Value:
    chosen = _chosen_fallback(item.fallbacks, broker)
    if chosen is None or item.option.name == "message.format.version":
        # Brokers of Kafka 3 ignore theirs (KIP-724).
        return item.option.default
    value = broker.value(chosen.name)
    if item.option.name in _NEWER_TIMESTAMP_BOUNDS and value == LONG_MAX:
        # KIP-937, as in a topic. This value then beats the older bound of a topic.
        return broker.value(_OLDER_TIMESTAMP_BOUND)
    if item.option.name == "retention.ms" and isinstance(value, int) and value < 0:
        return -1
    if isinstance(value, int) and not isinstance(value, bool):
        return value * chosen.factor
    return value


def _chosen_fallback(fallbacks: Sequence[Fallback], broker: BrokerConfig) -> Fallback | None:
    for item in fallbacks:
        if broker.value(item.name) is not None:
            return item
    return None


def describe_topic_options(
    overrides: Mapping[str, str],
    defaults: TopicDefaults,
    names: Set[str] | None,
) -> list[ConfigEntry]:
    """The options in DescribeConfigs; unknown names are left out, as in Kafka."""
    entries = []
    for name, item in TOPIC_OPTIONS_BY_NAME.items():
        if names is not None and name not in names:
            continue
        if name.startswith(OWN_PREFIX) and name not in overrides:
            continue  # Kafka's tools need not know an unset one
        synonyms = defaults.synonyms(name)
        if name in overrides:
            value = _as_read(item.option, overrides[name])
            synonyms = [Synonym(name, value, Source.TOPIC), *synonyms]
        else:
            value = item.option.format(defaults.value(name))
        entries.append(item.option.entry(value, synonyms, read_only=False))
    return entries


def _as_read(option: Option, text: str) -> str | None:
    """As Kafka shows a value: formatted after it was parsed. Unreadable text stays as it is."""
    try:
        return option.format(option.parse(text))
    except InvalidValueError:
        return text


def _of_same_meaning() -> Mapping[str, Sequence[str]]:
    """Broker option -> itself and the others that set the same, in other units."""
    found = {}
    for item in TOPIC_OPTIONS:
        names = [fallback.name for fallback in item.fallbacks]
        found |= dict.fromkeys(names, names)
    # An option of its own, whose value is the default of another.
    found["log.flush.scheduler.interval.ms"] = ["log.flush.scheduler.interval.ms"]
    return found


_OF_SAME_MEANING = _of_same_meaning()


def _broker_synonyms(name: str, broker: BrokerConfig) -> Sequence[Synonym]:
    """Values of a broker option and of those that set the same, the strongest source first.

    As in Kafka (``ConfigHelper.configSynonyms``) the list begins with the option itself: it is
    empty where only others are given.
    """
    found = [
        Synonym(one, candidate.text, candidate.source)
        for one in _OF_SAME_MEANING.get(name, (name,))
        for candidate in broker.candidates(one)
        if candidate.text is not None
    ]
    # All names of one source come before those of the next (the sort is stable).
    found.sort(key=lambda synonym: synonym.source)
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def describe_broker_options(
    broker: BrokerConfig,
    names: Set[str] | None,
    *,
    node_id: int | None = None,
    memory_bytes: int | None = None,
) -> list[ConfigEntry]:
    """This broker's options in DescribeConfigs.

    Tools look for directories in log.dirs and for the number in broker.id, so those show what is in
    use (``node_id`` may come from the disk), and so do defaults that depend on ``memory_bytes``.
    """
    defaults = {}
    if memory_bytes is not None:
        found = defaults_by_memory(memory_bytes)
        defaults = {name: str(value) for name, value in found.items()}
    settled = broker.places
    if node_id is not None:
        settled |= dict.fromkeys(NODE_ID_NAMES, Candidate(str(node_id), Source.STATIC_BROKER))
    entries = []
    for name, option in OPTIONS.items():
        if names is not None and name not in names:
            continue
        synonyms = list(_broker_synonyms(name, broker))
        if name in RUN_TIME_ONLY:
            synonyms = [item for item in synonyms if item.source != Source.DEFAULT]
            if not synonyms:
                continue
        if name in settled:
            default = [item for item in synonyms if item.source == Source.DEFAULT]
            synonyms = [Synonym(name, *settled[name]), *default]
        if name in defaults:
            synonyms[-1] = Synonym(name, defaults[name], Source.DEFAULT)
        value = settled[name].text if name in settled else option.format(broker.value(name))
        if name in defaults and len(synonyms) == 1:
            value = defaults[name]
        if option.is_secret:
            value, synonyms = None, [item._replace(value=None) for item in synonyms]
        read_only = option.update_mode == READ_ONLY or name in RUN_TIME_ONLY
        entries.append(option.entry(value, synonyms, read_only=read_only))
    return entries
