"""Sends a scenario's requests to a broker, and shows the answers so that two brokers' compare."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from tests.parity import batches
from tests.parity.definitions import API_VERSIONS_KEY, Counted, decode, definition, encode, plain
from tests.parity.rows import Frame, Reading, Row, Saved, Scenario
from tests.support.wire import Connection, ConnectionClosed, Reader, batch_headers, header

CLOSED = "the connection is closed"
SILENT = "no answer"

# Ids, places, times, sizes and sentences differ between any two brokers.
_IGNORED = frozenset(
    {
        "throttleTimeMs",
        "errorMessage",
        "batchIndexErrorMessage",
        "clusterId",
        "host",
        "port",
        "rack",
        "logAppendTimeMs",
        "sessionId",
        "clientHost",
        "logDir",
        "totalBytes",
        "usableBytes",
        "size",
        "documentation",
    }
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_UUID = "00000000-0000-0000-0000-000000000000"


class Read(NamedTuple):
    """What a partition has."""

    records: bytes
    aborted: list[dict[str, int]]
    """Of each transaction ``producerId`` and ``firstOffset``."""


class Session:
    """The connections of one scenario to one broker, and what was saved of its answers."""

    def __init__(self, bootstrap: str, patience_s: float) -> None:
        """An answer later than ``patience_s`` counts as none."""
        self.bootstrap = bootstrap
        self._patience_s = patience_s
        self.saved: dict[str, Any] = {}
        self.producers: dict[int, str] = {}
        """Names that answers have in place of producer ids."""
        self._connections: dict[str, Connection] = {}

    def run(self, scenario: Scenario) -> dict[str, Any]:
        """The answers by the rows' titles."""
        answers: dict[str, Any] = {}
        for step in scenario.steps:
            if isinstance(step, Row):
                answers[step.title] = self.answer(step)
            elif isinstance(step, Frame):
                answers[step.title] = self._answer_to_frame(step)
            elif isinstance(step, Reading):
                answers[step.title] = self._answer_to_reading(step)
            else:
                step(self)
        return answers

    def ask(self, api: str, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The decoded answer. ConnectionClosed, OSError or ValueError without one."""
        return self._exchange(Row("", api, version, fields))

    def answer(self, row: Row) -> Any:
        """As the files of answers have it."""
        try:
            if not row.is_answered:
                return self._send_unanswered(row)
            answer = self._exchange(row)
        except (ConnectionClosed, ConnectionError):
            self._drop(row.on)
            return CLOSED
        except TimeoutError:
            self._drop(row.on)
            return SILENT
        for name, path in row.save.items():
            self.saved[name] = _find(answer, path)
        return _shown(answer, row, self.producers)

    def read(self, topic: str, isolation_level: int = 0) -> Read:
        """Partition 0 from its start, fetch by fetch, until one brings no whole batch."""
        found = b""
        aborted: list[dict[str, int]] = []
        offset = 0
        while True:
            place = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
            fields = {
                "replicaId": -1,
                "maxBytes": 1 << 20,
                "isolationLevel": isolation_level,
                "topics": [{"topic": topic, "partitions": [place]}],
            }
            (partition,) = self.ask("Fetch", 11, fields)["responses"][0]["partitions"]
            assert partition["errorCode"] == 0, partition
            records = partition["records"] or b""
            heads = batch_headers(records)
            if not heads:
                return Read(found, aborted)
            found += records[: sum(12 + head.length for head in heads)]
            told = partition["abortedTransactions"] or ()
            aborted += [one for one in told if one not in aborted]
            offset = heads[-1].base_offset + heads[-1].last_offset_delta + 1

    def close(self) -> None:
        for name in list(self._connections):
            self._drop(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, row: Row) -> dict[str, Any]:
        key = definition(f"{row.api}Request").api_key
        flexible = row.version in definition(f"{row.api}Request").flexible
        reply = self._connection(row.on).request(
            key, row.version, self._body(row), flexible=flexible
        )
        version = row.version
        if key == API_VERSIONS_KEY and reply[:2] == b"\x00\x23":
            version = 0  # so that any client can read it
        return decode(f"{row.api}Response", version, reply)

    def _send_unanswered(self, row: Row) -> str:
        """Whether the connection lives is seen from the answer to another request."""
        key = definition(f"{row.api}Request").api_key
        flexible = row.version in definition(f"{row.api}Request").flexible
        connection = self._connection(row.on)
        connection.send_frame(header(key, row.version, 0, flexible=flexible) + self._body(row))
        reply = Reader(connection.request(API_VERSIONS_KEY, 0, b""))
        assert reply.number("h") == 0
        return SILENT

    def _body(self, row: Row) -> bytes:
        if row.body is not None:
            return row.body
        fields = self._resolve(row.fields)
        body = encode(f"{row.api}Request", row.version, fields, row.tags)
        return body[: len(body) - row.cut] + row.tail

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Saved):
            found = self.saved[value.name]
            return found + value.plus if value.plus else found
        if isinstance(value, Mapping):
            return {key: self._resolve(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._resolve(one) for one in value]
        if isinstance(value, Counted):
            return Counted(value.count, self._resolve(value.elements))
        return value

    def _answer_to_frame(self, frame: Frame) -> str:
        with Connection(self.bootstrap, self._patience_s) as connection:
            try:
                connection.socket.sendall(frame.data)
                return connection.read_frame()[: frame.compared_bytes].hex()
            except (ConnectionClosed, ConnectionError):
                return CLOSED
            except TimeoutError:
                return SILENT

    def _answer_to_reading(self, reading: Reading) -> Any:
        read = self.read(reading.topic, reading.isolation_level)
        answer = {"batches": batches.shown(read.records), "abortedTransactions": read.aborted}
        return _Comparison(_IGNORED, producers=self.producers).normal(answer)

    def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            self._connections[name] = Connection(self.bootstrap, self._patience_s)
        return self._connections[name]

    def _drop(self, name: str) -> None:
        if name in self._connections:
            self._connections.pop(name).close()


def _find(answer: Any, path: str) -> Any:
    for part in path.split("."):
        answer = answer[int(part)] if part.isdecimal() else answer[part]
    return answer


def _shown(answer: dict[str, Any], row: Row, producers: Mapping[int, str]) -> Any:
    ignored = (_IGNORED | set(row.without)) - set(row.kept)
    if row.api == "Fetch":
        _forget_empty_lists(answer)
        if "records" not in ignored:
            _show_batches(answer)
    if row.api == "Produce":
        _forget_log_starts(answer)
    compared = _Comparison(ignored, frozenset(row.only), frozenset(row.ordered), producers)
    return compared.normal(plain(answer))


def _show_batches(answer: dict[str, Any]) -> None:
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            partition["records"] = batches.shown(partition["records"] or b"")


def _has(value: Any, names: frozenset[str]) -> bool:
    """Whether a field of one of these names is somewhere inside."""
    if isinstance(value, dict):
        return any(key in names or _has(one, names) for key, one in value.items())
    return isinstance(value, list) and any(_has(one, names) for one in value)


def _forget_empty_lists(answer: dict[str, Any]) -> None:
    """An unknown partition has no aborted transactions here, an empty list of them in Kafka."""
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            if partition.get("abortedTransactions") == []:
                partition["abortedTransactions"] = None


def _forget_log_starts(answer: dict[str, Any]) -> None:
    """A refused batch has no log start offset here; Kafka has one for some refusals."""
    for topic in answer["responses"]:
        for partition in topic["partitionResponses"]:
            if partition["errorCode"]:
                partition.pop("logStartOffset", None)


@dataclass(frozen=True)
class _Comparison:
    """Fields that are left out, the only ones that are not, and arrays that keep their order."""

    ignored: frozenset[str]
    only: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()
    producers: Mapping[int, str] = field(default_factory=dict)

    def normal(self, value: Any, *, is_ordered: bool = False) -> Any:
        """Without what differs between brokers, and with arrays in an order of their own. A tuple
        keeps its order."""
        if isinstance(value, dict):
            return {
                key: self._in_place(self.normal(one, is_ordered=key in self.ordered), key)
                for key, one in value.items()
                if key not in self.ignored and self._is_wanted(key, one)
            }
        if isinstance(value, list | tuple):
            found = [self.normal(one) for one in value]
            keeps_order = is_ordered or isinstance(value, tuple)
            return found if keeps_order else sorted(found, key=json.dumps)
        if isinstance(value, str) and value != _NO_UUID:
            return _UUID.sub("<uuid>", value)
        return value

    def _is_wanted(self, key: str, value: Any) -> bool:
        return not self.only or key in self.only or _has(value, self.only)

    def _in_place(self, value: Any, key: str) -> Any:
        if key == "timestamp" and value > 0:
            return "<time>"
        if key == "sessionId" and value:
            return "<session>"
        return self.producers.get(value, value) if key == "producerId" else value
