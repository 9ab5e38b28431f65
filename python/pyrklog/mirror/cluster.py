"""What a mirror asks of a cluster besides records: topics, options, groups, ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from pyrklog.base.committed import committed_partitions
from pyrklog.mirror import names
from pyrklog.mirror.errors import AwayError, Kind, MirrorError
from pyrklog.scanning import (
    AuthenticationError,
    LeftOut,
    ScanError,
    UnknownTopicError,
    check_access,
    scan,
)

INTERNAL_REPLICAS_MAX = 3
_DYNAMIC_TOPIC_CONFIG = 1
_UNKNOWN_SOURCE = 0
_READ_MEMORY_BYTES = 16 << 20
_UNKNOWN_S = 3.0
"""One broker may know a new topic later than another."""
_RETRY_S = 0.1
_ANSWER_S, _LEAVE_S, _FAIL_S = 5.0, 30.0, 60.0
"""How long the leader of a partition is asked again that does not answer."""
_AWAY = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)
_DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
_NO_MEMBERS = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_UNKNOWN_GROUP = 69
"""GROUP_ID_NOT_FOUND."""
_ASKED_AT_ONCE_MAX = 8
"""Groups, each by a consumer of its own."""


def refusal(error: KafkaError, about: str) -> MirrorError:
    """An error of librdkafka as ours."""
    text = f"{about}: {error.str()}"
    if error.code() in _AWAY:
        return AwayError(text)
    denied = error.code() in _DENIED
    return MirrorError(text, kind=Kind.DENIED if denied else Kind.FAILED)


class Logs(NamedTuple):
    """Where partitions begin and end, and the ids of their topics; without those of brokers before
    2.8."""

    starts: dict[tuple[str, int], int]
    ends: dict[tuple[str, int], int]
    topic_ids: dict[str, str]
    left_out: Sequence[LeftOut] = ()
    """Partitions whose leaders do not answer: nothing is known of these."""


class ClusterAdmin:
    """One cluster. All methods raise MirrorError, and AwayError when it does not answer."""

    def __init__(self, cluster: names.Cluster, timeout_s: float) -> None:
        self.cluster = cluster
        self._timeout_s = timeout_s
        self._leaderless: frozenset[tuple[str, int]] = frozenset()

    @cached_property
    def _admin(self) -> AdminClient:
        found: AdminClient = self._made(AdminClient, {})
        return found

    def _made(self, kind: Any, own: Mapping[str, Any]) -> Any:
        """A handle of the cluster, with properties of its own."""
        logger = logging.getLogger("pyrklog.mirror.librdkafka")
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        try:
            settings = {
                "bootstrap.servers": self.cluster.bootstrap,
                "client.id": names.CLIENT_ID,
                "logger": logger,
                "log.connection.close": False,
                **self.cluster.security.librdkafka(),
                **own,
            }
            return kind(settings)
        except ValueError as error:
            raise MirrorError(f"{self._where}: {error}", kind=Kind.USAGE) from None
        except KafkaException as error:
            raise MirrorError(f"{self._where}: {error.args[0].str()}", kind=Kind.USAGE) from None

    def check_access(self) -> None:
        """Raises MirrorError if the cluster does not let the mirror in: librdkafka would only go on
        trying. A cluster that is away is no failure here."""
        cluster = self.cluster
        try:
            check_access(cluster.bootstrap, names.CLIENT_ID, self._timeout_s, cluster.security)
        except AuthenticationError as error:
            raise MirrorError(f"{self._where}: {error}", kind=Kind.DENIED) from None
        except ScanError as error:
            raise MirrorError(f"{self._where}: {error}") from None
        except ValueError as error:
            raise MirrorError(f"{self._where}: {error}", kind=Kind.USAGE) from None

    @property
    def _where(self) -> str:
        return f"{self.cluster.alias} ({self.cluster.bootstrap})"

    def topics(self) -> tuple[str, dict[str, int]]:
        """The cluster's id, and the partitions of each topic that has some."""
        try:
            metadata = self._admin.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            raise refusal(error.args[0], self._where) from None
        self._brokers = max(1, len(metadata.brokers))
        counts = {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None and topic.partitions
        }
        self._leaderless = frozenset(
            (name, number)
            for name in counts
            for number, partition in metadata.topics[name].partitions.items()
            if partition.leader < 0
        )
        return metadata.cluster_id or "", counts

    def leaderless(self) -> frozenset[tuple[str, int]]:
        """Partitions that nobody led when :meth:`topics` was last called."""
        return self._leaderless

    def create(
        self, topic: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> bool:
        """False if it exists."""
        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=replicas, config=dict(options)
        )
        return self._done(
            lambda: self._admin.create_topics([new], request_timeout=self._timeout_s)[topic],
            f"topic {topic} cannot be created at {self.cluster.alias}",
            KafkaError.TOPIC_ALREADY_EXISTS,
        )

    def create_internal(self, topic: str, options: Mapping[str, str]) -> bool:
        """With one partition, and replicas by the number of brokers; with three replicas
        ``min.insync.replicas`` is 2. False if it exists."""
        replicas = min(INTERNAL_REPLICAS_MAX, self._brokers)
        in_sync = {"min.insync.replicas": "2"} if replicas == INTERNAL_REPLICAS_MAX else {}
        return self.create(topic, 1, replicas, {**options, **in_sync})

    def add_partitions(self, topic: str, count: int) -> None:
        """Up to so many."""
        new = NewPartitions(topic, count)
        self._done(
            lambda: self._admin.create_partitions([new], request_timeout=self._timeout_s)[topic],
            f"topic {topic} cannot get {count} partitions at {self.cluster.alias}",
        )

    def options(self, topics: Iterable[str]) -> dict[str, dict[str, tuple[str | None, bool]]]:
        """Of each topic, its options: value, and whether it is the topic's own. A topic that is
        unknown is asked for again, for a while."""
        wanted = list(topics)
        until = time.monotonic() + _UNKNOWN_S
        while True:
            try:
                return self._options(wanted)
            except _UnknownError:
                if time.monotonic() > until:
                    raise
            time.sleep(_RETRY_S)

    def _options(self, topics: Sequence[str]) -> dict[str, dict[str, tuple[str | None, bool]]]:
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not wanted:
            return {}
        futures = self._asked(
            lambda: self._admin.describe_configs(wanted, request_timeout=self._timeout_s)
        )
        found = {}
        for resource, future in futures.items():
            try:
                entries = future.result()
            except KafkaException as error:
                about = f"options of topic {resource.name} at {self.cluster.alias}"
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    # The next look does not list it, or a broker has just started.
                    raise _UnknownError(f"{about}: {error.args[0].str()}") from None
                raise refusal(error.args[0], about) from None
            found[resource.name] = {
                name: (entry.value, _is_own(entry)) for name, entry in entries.items()
            }
        return found

    def set_options(self, topic: str, options: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in options.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._done(
            lambda: next(
                iter(
                    self._admin.incremental_alter_configs(
                        [resource], request_timeout=self._timeout_s
                    ).values()
                )
            ),
            f"options of topic {topic} cannot be set at {self.cluster.alias}",
        )

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        """Those of each partition before an offset; not of topics that are only compacted."""
        offsets = [TopicPartition(*partition, offset) for partition, offset in before.items()]
        futures = self._asked(
            lambda: self._admin.delete_records(offsets, request_timeout=self._timeout_s)
        )
        for one, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.POLICY_VIOLATION:
                    continue
                about = (
                    f"the beginning of partition {one.partition} of topic {one.topic} at "
                    f"{self.cluster.alias}"
                )
                raise refusal(error.args[0], about) from None

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as error:
            raise refusal(error.args[0], self.cluster.alias) from None

    def _done(self, call: Callable[[], Any], about: str, harmless: int | None = None) -> bool:
        try:
            call().result()
        except KafkaException as error:
            if error.args[0].code() == harmless:
                return False
            raise refusal(error.args[0], about) from None
        return True

    # Groups.

    def groups(self) -> list[str]:
        future = self._asked(
            lambda: self._admin.list_consumer_groups(request_timeout=self._timeout_s)
        )
        try:
            return [one.group_id for one in future.result().valid]
        except KafkaException as error:
            raise refusal(error.args[0], f"groups of {self.cluster.alias}") from None

    def committed(
        self,
        groups: Sequence[str],
        partitions: Iterable[tuple[str, int]],
        note: Callable[[str], None],
    ) -> dict[str, dict[tuple[str, int], TopicPartition]]:
        """What each group has committed of the partitions, without groups of which the cluster does
        not tell it: ``note`` is told these."""
        asked = list(partitions)
        with ThreadPoolExecutor(_ASKED_AT_ONCE_MAX) as pool:
            answers = list(pool.map(lambda group: self._committed(group, asked), groups))
        found = {}
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, MirrorError):
                note(answer.what)
            else:
                found[group] = answer
        return found

    def _committed(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], TopicPartition] | MirrorError:
        """Returns a failure of this group alone."""
        try:
            found = committed_partitions({}, group, partitions, self._timeout_s, self._made)
        except KafkaException as error:
            if error.args[0].code() == _UNKNOWN_GROUP:
                return {}
            about = f"offsets of group {group} at {self.cluster.alias}"
            return _of_group(refusal(error.args[0], about))
        return {(one.topic, one.partition): one for one in found}

    def without_members(self, groups: Sequence[str], note: Callable[[str], None]) -> list[str]:
        """Those of the groups that nobody is in. One that cannot be described, such as one of
        another type, counts as having members; ``note`` is told it."""
        if not groups:
            return []
        futures = self._asked(
            lambda: self._admin.describe_consumer_groups(
                list(groups), request_timeout=self._timeout_s
            )
        )
        found = []
        for group, future in futures.items():
            try:
                is_empty = future.result().state in _NO_MEMBERS
            except KafkaException as error:
                is_empty = error.args[0].code() == _UNKNOWN_GROUP
                if not is_empty:
                    about = f"group {group} at {self.cluster.alias}"
                    note(f"{_of_group(refusal(error.args[0], about)).what}; it is left alone")
            if is_empty:
                found.append(group)
        return found

    def commit(self, group: str, offsets: Sequence[TopicPartition]) -> None:
        wanted = [ConsumerGroupTopicPartitions(group, list(offsets))]
        about = f"offsets of group {group} at {self.cluster.alias}"
        future = self._asked(
            lambda: self._admin.alter_consumer_group_offsets(
                wanted, request_timeout=self._timeout_s
            )
        )[group]
        try:
            refused = [one for one in future.result().topic_partitions if one.error is not None]
        except KafkaException as error:
            raise refusal(error.args[0], about) from None
        if refused:
            raise refusal(refused[0].error, about)

    # Records and ends.

    def ends(self, topics: Mapping[str, int], isolation: str) -> dict[tuple[str, int], int]:
        """The end of each partition of these topics, of which so many partitions count."""
        return self.logs(
            {topic: list(range(count)) for topic, count in topics.items()}, isolation
        ).ends

    def logs(
        self,
        partitions: Mapping[str, Sequence[int] | None],
        isolation: str,
        *,
        leaves: bool = False,
    ) -> Logs:
        """Of these partitions by topic; None for all of a topic. With ``leaves`` those whose
        leaders do not answer are left out; else they count as away."""
        wanted = {topic: some for topic, some in partitions.items() if some is None or some}
        if not wanted:
            return Logs({}, {}, {})
        with scan(
            wanted,
            columns=[],
            threads=1,
            isolation=isolation,
            unanswered="leave" if leaves else "fail",
            timeout_s=_LEAVE_S if leaves else _FAIL_S,
            **self.reading(),
        ) as planned:
            progress = planned.progress()
            return Logs(
                {(one.topic, one.partition): one.start for one in progress},
                {(one.topic, one.partition): one.end for one in progress},
                planned.topic_ids,
                planned.left_out,
            )

    def silent(self, partitions: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
        """Those of the partitions whose leaders do not answer. May be called on any thread."""
        with scan(
            partitions,
            columns=[],
            threads=1,
            unanswered="leave",
            timeout_s=_ANSWER_S,
            **self.reading(),
        ) as planned:
            return [(one.topic, one.partition) for one in planned.left_out]

    def records(
        self,
        topic: str,
        since: datetime | None = None,
        *,
        waits: bool = False,
        exists: bool = False,
        servers: str | None = None,
        timeout_s: float = _FAIL_S,
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Committed keys and values of a topic with one partition; none if there is no topic. With
        ``waits`` up to its present end: what an open transaction hides is waited for. With
        ``exists`` a broker that does not know the topic counts as away. ``servers`` are asked
        instead of the cluster's bootstrap servers."""
        arguments = {**self.reading(), "threads": 1, "timeout_s": timeout_s}
        if servers is not None:
            arguments["bootstrap_servers"] = servers
        try:
            isolation = "read_uncommitted" if waits else "read_committed"
            with scan({topic: [0]}, columns=[], isolation=isolation, **arguments) as planned:
                end = planned.progress()[0].end
            with scan(
                {topic: [0]},
                start="earliest" if since is None else since,
                end=end,
                columns=["key", "value"],
                missing="skip",
                memory_bytes=_READ_MEMORY_BYTES,
                **arguments,
            ) as reading:
                for batch in reading.reader():
                    yield from zip(*(column.to_pylist() for column in batch), strict=True)
        except UnknownTopicError:
            if exists:
                text = f"a broker of {self.cluster.alias} does not know topic {topic}, which exists"
                raise AwayError(text) from None

    def reading(self) -> dict[str, Any]:
        """Arguments of :func:`pyrklog.scan`."""
        return {
            "bootstrap_servers": self.cluster.bootstrap,
            "client_id": names.CLIENT_ID,
            "security": self.cluster.security,
        }


def _of_group(error: MirrorError) -> MirrorError:
    """A failure of one group. Raises it if it is the cluster's."""
    if error.kind in (Kind.UNREACHABLE, Kind.DENIED):
        raise error
    return error


class _UnknownError(AwayError):
    """A broker does not know a topic."""


def _is_own(entry: Any) -> bool:
    """Brokers before 1.1 only tell what is a default."""
    source = int(entry.source)
    return source == _DYNAMIC_TOPIC_CONFIG or (source == _UNKNOWN_SOURCE and not entry.is_default)
