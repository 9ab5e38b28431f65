from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyrklog.base.data_home import data_home
from pyrklog.base.problems import Problem
from pyrklog.config.broker_options import BROKER_OPTIONS
from pyrklog.config.dynamic import LISTENER_PREFIX, listener_option
from pyrklog.config.entry import Source
from pyrklog.config.group_options import GROUP_OPTIONS
from pyrklog.config.http_place import NAME as HTTP_LISTENER
from pyrklog.config.http_place import HttpPlace, http_place
from pyrklog.config.listeners import INTER_BROKER_PROTOCOL, Listeners, resolve_listeners
from pyrklog.config.log_options import BROKER_LOG_OPTIONS
from pyrklog.config.option import CLUSTER_WIDE, InvalidValueError, Option, Value
from pyrklog.config.report_options import REPORT_OPTIONS, ReportSettings, report_settings
from pyrklog.config.transaction_options import TRANSACTION_OPTIONS
from pyrklog.config.value_fixes import fix_for_number
from pyrklog.errors import ConfigError

OPTIONS: Mapping[str, Option] = {
    item.name: item
    for item in (
        *BROKER_OPTIONS,
        *GROUP_OPTIONS,
        *TRANSACTION_OPTIONS,
        *BROKER_LOG_OPTIONS,
        *REPORT_OPTIONS,
    )
}

DEFAULTS_ALONE: Mapping[str, Value] = {"group.initial.rebalance.delay.ms": 0}
"""Defaults of a broker without ZooKeeper where they differ."""

NODE_ID_NAMES = ("broker.id", "node.id")
DEFAULT_DATA_DIR = "default"
"""Below :func:`data_home`."""
REQUEST_MAX_BYTES = "socket.request.max.bytes"
REQUEST_MIN_BYTES = 16 * 2**20
"""Least default of ``socket.request.max.bytes``."""
SEND_BUFFER_BYTES = "socket.send.buffer.bytes"
SEND_BUFFER_MIN_BYTES = 102_400
"""Kafka's default, for little memory: unread replies occupy the kernel's buffers."""
SEND_BUFFER_MEMORY_BYTES = 2 * 2**30
LAG_HISTORY_BYTES = "pyrklog.lag.history.max.bytes"
LAG_HISTORY_SHARE = 128
"""Of the memory, at most."""
"""Below this, memory is little."""
RECEIVE_BUFFERS_MIN_BYTES = 16 * 2**20


ON_COMMAND_LINE = "--set"
"""Origin of options that a start was given by name."""


class Given(NamedTuple):
    text: str
    origin: str
    """For people: "--data", "environment PYRKLOG_X", "server.properties line 7"."""


class Candidate(NamedTuple):
    text: str | None
    source: int


def wrong_with_value(name: str, given: Given) -> ConfigError | None:
    """Of an option that there is."""
    option = OPTIONS.get(name) or listener_option(name)
    assert option is not None, name
    try:
        option.parse(given.text)
    except InvalidValueError as error:
        return _wrong_value(name, given.text, given, error)
    return None


def _wrong_value(
    name: str, text: str, given: Given | None, error: InvalidValueError
) -> ConfigError:
    what = f"{error} ({given.origin})" if given else str(error)
    fix = fix_for_number(name, text) or f"see `pyrklog config explain {name}`"
    return ConfigError(Problem.OPTION_VALUE, what, fix=fix)


class BrokerConfig:
    """Static options, overridden by run-time changes for this broker or for all.

    Immutable: a run-time change makes a new one.
    """

    def __init__(
        self,
        given: Mapping[str, Given],
        *,
        notices: Sequence[str] = (),
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
        has_kafka_file: bool = False,
    ) -> None:
        """``has_kafka_file``: the file among ``given`` is one with which Kafka starts."""
        self.given = dict(given)
        self.notices = list(notices)
        self.dynamic_default = dict(dynamic_default or {})
        self.dynamic_broker = dict(dynamic_broker or {})
        self.has_kafka_file = has_kafka_file
        self._is_alone = False
        self._is_alone = not self.candidates("zookeeper.connect")[0].text
        self._values: dict[str, Value] = {}
        for name, option in OPTIONS.items():
            strongest = self.candidates(name)[0]
            if strongest.source == Source.DEFAULT or strongest.text is None:
                self._values[name] = self._default(option)
                continue
            try:
                self._values[name] = option.parse(strongest.text)
            except InvalidValueError as error:
                given_value = self.given.get(name)
                raise _wrong_value(name, strongest.text, given_value, error) from None
        self._of_listeners = self._read_of_listeners()

    def _read_of_listeners(self) -> dict[str, Value]:
        """Options behind a listener's prefix, by their whole names."""
        found = {}
        static = {name: given.text for name, given in self.given.items()}
        for name, text in {**static, **self.dynamic_default, **self.dynamic_broker}.items():
            option = listener_option(name)
            if option is None:
                continue
            try:
                found[name] = option.parse(text)
            except InvalidValueError as error:
                raise _wrong_value(name, text, self.given.get(name), error) from None
        return found

    def candidates(self, name: str) -> list[Candidate]:
        """The option's values, the strongest first, the default last."""
        found = []
        if name in self.dynamic_broker:
            found.append(Candidate(self.dynamic_broker[name], Source.DYNAMIC_BROKER))
        if name in self.dynamic_default:
            found.append(Candidate(self.dynamic_default[name], Source.DYNAMIC_DEFAULT_BROKER))
        if name in self.given:
            found.append(Candidate(self.given[name].text, Source.STATIC_BROKER))
        option = OPTIONS[name]
        found.append(Candidate(option.format(self._default(option)), Source.DEFAULT))
        return found

    def _default(self, option: Option) -> Value:
        if self._is_alone and option.name in DEFAULTS_ALONE:
            return DEFAULTS_ALONE[option.name]
        return option.default

    def with_given(self, more: Mapping[str, Given]) -> BrokerConfig:
        return BrokerConfig(
            {**self.given, **more},
            notices=self.notices,
            dynamic_default=self.dynamic_default,
            dynamic_broker=self.dynamic_broker,
            has_kafka_file=self.has_kafka_file,
        )

    def with_dynamic(
        self, *, default: Mapping[str, str], broker: Mapping[str, str]
    ) -> BrokerConfig:
        return BrokerConfig(
            self.given,
            notices=self.notices,
            dynamic_default={k: v for k, v in default.items() if is_dynamic(k)},
            dynamic_broker={k: v for k, v in broker.items() if is_dynamic(k)},
            has_kafka_file=self.has_kafka_file,
        )

    @property
    def overruled(self) -> dict[str, str]:
        """Options of ``--set`` that a value of a run-time change hides: "broker", or "default" for
        one that holds for all brokers."""
        found = {}
        for name, given in self.given.items():
            if given.origin != ON_COMMAND_LINE:
                continue
            for level, stored in (
                ("broker", self.dynamic_broker),
                ("default", self.dynamic_default),
            ):
                if name in stored:
                    if stored[name] != given.text:
                        found[name] = level
                    break
        return found

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def boolean(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def string(self, name: str) -> str | None:
        """Empty counts as unset."""
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value or None

    def value(self, name: str) -> Value:
        return self._values[name]

    def of_listener(self, listener: str, name: str) -> Value:
        """An option behind the listener's prefix; None where it is not given."""
        return self._of_listeners.get(f"{LISTENER_PREFIX}{listener.lower()}.{name}")

    @property
    def zookeeper(self) -> str | None:
        """``zookeeper.connect``; None for a broker that is alone."""
        return self.string("zookeeper.connect")

    @property
    def configured_node_id(self) -> int:
        """``broker.id`` or ``node.id``; -1 for neither."""
        broker_id, node_id = self.integer("broker.id"), self.integer("node.id")
        if broker_id >= 0 and node_id >= 0 and broker_id != node_id:
            raise ConfigError(
                Problem.OPTIONS_DISAGREE,
                f"broker.id is {broker_id} and node.id is {node_id}; they must be equal.",
                fix="leave one of them out, or give both the same number",
            )
        return max(broker_id, node_id)

    @property
    def data_dir(self) -> Path:
        given = self.string("pyrklog.data.dir")
        if given is None:
            return data_home(os.environ) / DEFAULT_DATA_DIR
        return Path(given).expanduser().absolute()

    @property
    def _is_foreign_data_dir(self) -> bool:
        """Whether the data directory is another broker's log directory."""
        path = self.data_dir
        return (path / "meta.properties").is_file() and not (path / "logs").is_dir()

    @property
    def log_dirs(self) -> list[Path]:
        """Absolute, in the configured order, each once."""
        name = "log.dir" if self.value("log.dirs") is None else "log.dirs"
        text = self.value(name)
        if text is None:
            return [self.data_dir if self._is_foreign_data_dir else self.data_dir / "logs"]
        named = [item.strip() for item in str(text).split(",") if item.strip()]
        if not named:
            raise ConfigError(
                Problem.OPTION_VALUE,
                f"{name} ({self.given[name].origin}) names no directory.",
                fix="name one, or leave the option out for logs/ in the data directory",
            )
        return list(dict.fromkeys(Path(item).expanduser().absolute() for item in named))

    @property
    def meta_dir(self) -> Path:
        """The embedded metadata store's directory; never inside a log directory."""
        explicit = self.string("pyrklog.meta.dir")
        if explicit is not None:
            path = Path(explicit).expanduser().absolute()
        elif self.log_dirs == [self.data_dir]:
            path = self.data_dir.with_name(self.data_dir.name + "-meta")
        elif self.string("pyrklog.data.dir") is None and self.log_dirs[0].parent != self.data_dir:
            first = self.log_dirs[0]
            path = first.with_name(first.name + "-meta")
        else:
            path = self.data_dir / "meta"
        for log_dir in self.log_dirs:
            if path == log_dir or log_dir in path.parents:
                raise ConfigError(
                    Problem.DIRECTORIES_MISPLACED,
                    f"pyrklog.meta.dir ({path}) lies in the log directory {log_dir}; "
                    "choose a place outside.",
                )
        return path

    @property
    def places(self) -> dict[str, Candidate]:
        """The directories in force; they depend on one another and on the data directory."""
        everything = ",".join(map(str, self.log_dirs))
        own = self.given.keys() & {"log.dirs", "log.dir", "pyrklog.data.dir", "pyrklog.meta.dir"}
        source = Source.STATIC_BROKER if own else Source.DEFAULT
        return {
            "log.dir": Candidate(self.string("log.dir") or everything, source),
            "log.dirs": Candidate(everything, source),
            "pyrklog.meta.dir": Candidate(str(self.meta_dir), source),
        }

    @property
    def listeners(self) -> Listeners:
        return resolve_listeners(
            self.string("listeners") or "",
            self.string("advertised.listeners"),
            self.string("listener.security.protocol.map") or "",
            self.string("inter.broker.listener.name"),
            self.string("controller.listener.names"),
            self.string(INTER_BROKER_PROTOCOL) if INTER_BROKER_PROTOCOL in self.given else None,
        )

    @property
    def http_place(self) -> HttpPlace | None:
        """Where HTTP is served; None: nowhere."""
        return http_place(self.string(HTTP_LISTENER), self.listeners.bound)

    @property
    def reports(self) -> ReportSettings:
        """Where metrics are reported. Raises :class:`ConfigError`."""
        return report_settings(self)

    def request_max_bytes(self, memory_bytes: int) -> int:
        """``socket.request.max.bytes``; its default is smaller with little memory."""
        return self._by_memory(REQUEST_MAX_BYTES, memory_bytes)

    def send_buffer_bytes(self, memory_bytes: int) -> int:
        return self._by_memory(SEND_BUFFER_BYTES, memory_bytes)

    def lag_history_bytes(self, memory_bytes: int) -> int:
        return self._by_memory(LAG_HISTORY_BYTES, memory_bytes)

    def _by_memory(self, name: str, memory_bytes: int) -> int:
        return self.integer(name) if name in self.given else defaults_by_memory(memory_bytes)[name]

    def receive_buffers_max_bytes(self, memory_bytes: int) -> int:
        """``queued.max.request.bytes``; its default depends on the memory."""
        given = self.integer("queued.max.request.bytes")
        largest = self.request_max_bytes(memory_bytes)
        if given > 0:
            return max(given, largest)
        return max(memory_bytes // 8, largest + RECEIVE_BUFFERS_MIN_BYTES)

    def explain(self, memory_bytes: int) -> list[tuple[str, str, str]]:
        """(name, value in force, origin) of every option that has an effect, for people."""
        rows = []
        settled = {name: place.text for name, place in self.places.items()}
        for name in defaults_by_memory(memory_bytes):
            settled[name] = str(self._by_memory(name, memory_bytes))
        for name, option in sorted(OPTIONS.items()):
            if not option.effective:
                continue
            value = settled[name] if name in settled else option.format(self._values[name])
            if option.is_secret and value:
                value = "[hidden]"
            given = self.given.get(name)
            rows.append((name, value or "", given.origin if given else "default"))
        return rows


def defaults_by_memory(memory_bytes: int) -> dict[str, int]:
    """Defaults that depend on the memory: the smaller of RAM and the limits of the process's memory
    groups."""
    largest, buffer = OPTIONS[REQUEST_MAX_BYTES].default, OPTIONS[SEND_BUFFER_BYTES].default
    assert isinstance(largest, int)
    assert isinstance(buffer, int)
    lag_history = OPTIONS[LAG_HISTORY_BYTES].default
    assert isinstance(lag_history, int)
    is_small = memory_bytes < SEND_BUFFER_MEMORY_BYTES
    return {
        REQUEST_MAX_BYTES: min(largest, max(memory_bytes // 16, REQUEST_MIN_BYTES)),
        SEND_BUFFER_BYTES: SEND_BUFFER_MIN_BYTES if is_small else buffer,
        LAG_HISTORY_BYTES: min(lag_history, memory_bytes // LAG_HISTORY_SHARE),
    }


def is_dynamic(name: str) -> bool:
    option = OPTIONS.get(name) or listener_option(name)
    return option is not None and option.update_mode == CLUSTER_WIDE
