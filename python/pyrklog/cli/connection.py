"""Handles of confluent-kafka, for any Kafka, and quick errors if no broker answers."""

import logging
import re
import socket
from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

from pyrklog.base.librdkafka import RECONNECT, kind_of
from pyrklog.base.problems import Problem
from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.failures import CliError, Exit, cli_error
from pyrklog.cli.interrupts import waited_for
from pyrklog.cli.options import Settings
from pyrklog.cli.peer_protocol import HTTP, WITHOUT_TLS, fix_for, foreign, is_without_tls

PartitionKey = tuple[str, int]
"""Topic and partition."""


class Other(NamedTuple):
    """What answers at an address instead of a broker. ``what`` follows the address."""

    what: str
    fix: str
    why: str | None = None


PROBE_TIMEOUT_S = 3.0
SAID_MAX = 20
_BOOTSTRAP_OPTION = re.compile(r"(?<!\S)-b(?![^\s,;])")
_PROPERTY_OPTION = re.compile(r"(?<!\S)-X(?=\s)")
_NO_KAFKA = "Invalid response size"
_NO_SASL = ("SASL Handshake not supported by broker", "not valid in current SASL state")
"""Of a broker from before 0.10, and of one whose listener has no SASL (ILLEGAL_SASL_STATE)."""
_EXPLAINED = ("KAFKA_STORAGE_ERROR",)
"""Errors whose cause the cluster may know, besides timeouts and unreachable brokers."""


def probe(settings: Settings) -> None:
    """Fails at once if no bootstrap broker accepts connections and speaks Kafka.

    librdkafka would retry until the timeout without a reason.
    """
    try:
        _probe(settings)
    except CliError as error:
        raise _as_given(error, settings) from None


def _as_given(error: CliError, settings: Settings) -> CliError:
    """The error with the options that the broker and its properties were given with."""
    if settings.bootstrap_option == "-b":
        return error
    what, fix = (
        text
        and _PROPERTY_OPTION.sub(
            settings.property_option, _BOOTSTRAP_OPTION.sub(settings.bootstrap_option, text)
        )
        for text in (error.what, error.fix)
    )
    return CliError(error.problem, what or "", fix, why=error.why)


def _probe(settings: Settings) -> None:
    reasons: list[str] = []
    is_foreign, why = True, None
    fix = start_fix(settings)
    for host, port in addresses(settings.bootstrap):
        where = f"{host}:{port}"
        try:
            found = what_answers((host, port), settings)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            reasons.append(f"{where}: {reason}")
            is_foreign = False
            continue
        if found is None:
            return
        reasons.append(f"{where} {found.what}")
        is_foreign = is_foreign and found.what != WITHOUT_TLS  # that one is a broker
        fix, why = found.fix, found.why
    problem = Problem.NOT_KAFKA if is_foreign else Problem.NO_BROKER
    raise CliError(problem, f"no broker reached ({', '.join(reasons)})", fix, why=why)


def start_fix(settings: Settings, address: str | None = None) -> str:
    """About a broker that does not run: the one at this address, or any."""
    profile = settings.profile
    if not settings.is_profiles_broker or profile is None:
        return "start one with `pyrklog serve`, or name another with -b HOST:PORT"
    start = "start it"
    if profile.dev is not None:
        from pyrklog.cli.dev_profile import start_command

        start = f"`{start_command(profile.dev, address)}`"
    return f"{start}: profile {profile.name} names it; or give -b HOST:PORT, or another -p PROFILE"


def what_answers(address: tuple[str, int], settings: Settings) -> Other | None:
    """What answers instead of a broker with these settings. Raises OSError."""
    timeout_s = min(PROBE_TIMEOUT_S, settings.timeout_s)
    found = _protocol(address, settings, timeout_s)
    if found == HTTP:
        from pyrklog.cli.http_port import WHY, http_port, kafka_port_fix

        ours = http_port(address, timeout_s)
        if ours is not None:
            return Other(ours.what, kafka_port_fix(address, timeout_s), WHY)
    if found is None:
        return None
    return Other(found, fix_for(found, settings.properties.get("security.protocol", "")))


def _protocol(address: tuple[str, int], settings: Settings, timeout_s: float) -> str | None:
    if settings.security_protocol in ("ssl", "sasl_ssl"):
        return WITHOUT_TLS if is_without_tls(address, timeout_s) else None
    with socket.create_connection(address, timeout=timeout_s) as connection:
        return foreign(connection) if is_readable(settings) else None


def is_readable(settings: Settings) -> bool:
    return settings.security_protocol in ("plaintext", "sasl_plaintext")


def quiet_logger() -> logging.Logger:
    """For librdkafka, whose messages a handle keeps for its errors."""
    logger = logging.getLogger("pyrklog.cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


class Connection:
    """One cluster. Remembers librdkafka's last messages."""

    def __init__(self, settings: Settings) -> None:
        probe(settings)
        self.settings = settings
        self.is_cut_off = False
        """Whether librdkafka reached no broker in its last attempt."""
        self._said: deque[str] = deque(maxlen=SAID_MAX)
        self._admin: Any = None
        self._is_checked = False

    def configuration(self, **more: Any) -> dict[str, Any]:
        """Properties of a handle; the user's override ours."""
        return {
            "client.id": "pyrklog-cli",
            "logger": quiet_logger(),
            "error_cb": self._on_error,
            "log.connection.close": False,
            **RECONNECT,
            **more,
            **self.settings.properties,
            "bootstrap.servers": self.settings.bootstrap,
        }

    def _on_error(self, error: Any) -> None:
        if kind_of(error.str()) not in map(kind_of, self._said):
            self._said.append(error.str())
        if error.name() == "_ALL_BROKERS_DOWN":
            self.is_cut_off = True

    def check_cut_off(self) -> bool:
        """Whether no broker is reachable now; librdkafka does not report their return."""
        if self.is_cut_off:
            try:
                probe(self.settings)
            except CliError:
                return True
            self.is_cut_off = False
        return False

    @property
    def admin(self) -> Any:
        """The ``AdminClient``, made at first use. Raises :class:`CliError` if no advertised address
        answers: librdkafka would retry until the timeout with all available CPU time."""
        self.refuse_unreachable()
        return self._handle()

    def refuse_unreachable(self) -> None:
        """Raises :class:`CliError` if no advertised address answers; checks once, if it can."""
        if self._is_checked:
            return
        from pyrklog.cli.cluster_views import is_plain, refuse_unreachable

        if is_plain(self.settings):
            try:
                refuse_unreachable(self.settings)
            except CliError as error:
                raise _as_given(error, self.settings) from None
        self._is_checked = True

    def check_properties(self) -> None:
        """For commands that ask brokers without librdkafka: raises :class:`CliError` for properties
        that it does not know."""
        if self.settings.properties:
            self._handle()

    def _handle(self) -> Any:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = self.make(AdminClient, self.configuration())
        return self._admin

    def make(self, kind: Any, configuration: dict[str, Any]) -> Any:
        """Makes a handle; refused properties are usage errors."""
        from confluent_kafka import KafkaException

        try:
            return kind(configuration)
        except KafkaException as error:
            raise _refused_property(str(error.args[0].str())) from None
        except (TypeError, ValueError) as error:
            raise _refused_property(str(error)) from None

    def admin_result(self, call: Any, about: str, *arguments: Any, **options: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            future = call(*arguments, request_timeout=self.settings.timeout_s, **options)
            return future.result()
        except KafkaException as error:
            raise self.explain(error.args[0], about) from None

    def metadata(self) -> Any:
        """Of all topics."""
        from confluent_kafka import KafkaException

        try:
            admin = self._handle()
            return waited_for(lambda: admin.list_topics(timeout=self.settings.timeout_s))
        except KafkaException as error:
            raise self.explain(error.args[0], "cannot read metadata") from None

    def explain(self, kafka_error: Any, about: str, topics: Collection[str] = ()) -> CliError:
        """An error of librdkafka with its cause: from the cluster's state and these topics, else
        from librdkafka's messages."""
        return _as_given(self._explained(kafka_error, about, topics), self.settings)

    def _explained(self, kafka_error: Any, about: str, topics: Collection[str]) -> CliError:
        if self._admin is not None:
            self._admin.poll(0)
        said = [line for line in self._said if line]
        topic = next(iter(topics)) if len(topics) == 1 else None
        error = cli_error(kafka_error, about, topic=topic)
        is_over = error.code in (Exit.UNREACHABLE, Exit.TIMED_OUT)
        if is_over or kafka_error.name() in _EXPLAINED:
            found = self.cause(topics)
            if found is not None:
                what = f"{about}: {found.what}" if about else found.what
                return CliError(error.problem, what, found.fix, why=found.why)
        if any(_NO_KAFKA in line for line in said):
            what = f"what answers at {self.settings.bootstrap} does not speak Kafka's protocol"
            return CliError(Problem.NOT_KAFKA, what, "check the port given with -b")
        if any(text in line for line in said for text in _NO_SASL):
            what = f"{about}: the broker at {self.settings.bootstrap} knows no SASL"
            return CliError(
                error.problem, what, "leave out -X security.protocol, or give another -b"
            )
        if said and error.code in (Exit.UNREACHABLE, Exit.TIMED_OUT):
            return CliError(error.problem, f"{error.what} ({said[0]})", error.fix)
        return error

    def cause(self, topics: Collection[str] = ()) -> CliError | None:
        from pyrklog.cli.cluster_state import cause
        from pyrklog.cli.cluster_views import is_plain, read_plain_state

        if not is_plain(self.settings):
            return None
        try:
            state = read_plain_state(self.settings, lambda one: one.topic in topics, log_dirs=True)
        except CliError:
            return None
        return cause(state, topics)

    def topic_partitions(self, names: list[str], fix: str | None = None) -> dict[str, list[int]]:
        """Partitions of each topic. Raises :class:`CliError` for a missing one, with ``fix`` unless
        a similar name exists."""
        return {name: sorted(found) for name, found in self.topic_leaders(names, fix).items()}

    def topic_leaders(self, names: list[str], fix: str | None = None) -> dict[str, dict[int, int]]:
        """As :meth:`topic_partitions`, each with its leader (-1: none)."""
        topics = self.metadata().topics
        found: dict[str, dict[int, int]] = {}
        for name in names:
            topic = topics.get(name)
            if topic is None:
                raise missing_topic(name, list(topics), fix)
            if topic.error is not None:
                raise cli_error(topic.error, f"topic {name}", topic=name)
            found[name] = {one.id: one.leader for _, one in sorted(topic.partitions.items())}
        return found


def _refused_property(refusal: str) -> CliError:
    from pyrklog.cli.hints import property_hint

    fix = property_hint(refusal) or "-X takes properties of librdkafka"
    return CliError(Problem.ARGUMENT_VALUE, refusal, fix)


def missing_topic(name: str, names: list[str], fix: str | None = None) -> CliError:
    """The error for a missing topic, with the most similar name."""
    from difflib import get_close_matches

    if not name:
        return CliError(Problem.ARGUMENT_VALUE, "the name of a topic is not empty")
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    proposed = f"did you mean {near[0]}?" if near else fix or "see `pyrklog topic list`"
    return CliError(Problem.TOPIC_NOT_FOUND, f"topic {name} does not exist", proposed)
