"""When a reader says that no broker can be reached."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pyrklog.cli.connection import Connection
from pyrklog.cli.consumer import RecordConsumer
from pyrklog.cli.options import Settings

NOTE = "note: no broker can be reached; trying again\n"


class Message:
    def __init__(self, code: int | None = None) -> None:
        self._error = None if code is None else KafkaError(code)

    def error(self) -> KafkaError | None:
        return self._error


class FakeConnection(Connection):
    """Brokers are there or not, for every caller."""

    def __init__(self) -> None:
        self.is_cut_off = False
        self.is_anyone_there = True

    def check_cut_off(self) -> bool:
        self.is_cut_off = self.is_cut_off and not self.is_anyone_there
        return self.is_cut_off


class FakeConsumer:
    """Returns what is next. ``says_cut_off``: in that call librdkafka says that all brokers are
    down."""

    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection
        self.next: list[Message] = []
        self.says_cut_off = False

    def consume(self, limit: int, wait_s: float) -> list[Message]:
        if self.says_cut_off:
            self.says_cut_off = False
            self._connection.is_cut_off = True
            self._connection.is_anyone_there = False
        found, self.next = self.next, []
        return found


class PlainReader(RecordConsumer):
    def start(self) -> None:
        self.brokers = FakeConnection()
        self._connection = self.brokers
        self._consumer = FakeConsumer(self.brokers)

    def finished(self, at_end: bool) -> bool:
        return False

    def read(self, limit: int, wait_s: float) -> list[Any]:
        return self._poll(limit, wait_s)

    def _left(self) -> str:
        return "something was not read"

    def written(self, messages: Sequence[Any]) -> None:
        pytest.fail(f"nobody prints here: {messages}")


@pytest.fixture
def reader() -> PlainReader:
    reader = PlainReader(Settings(bootstrap="nowhere:1"), ["t"], read_committed=False)
    reader.start()
    return reader


@pytest.mark.parametrize(
    "beside", [[], [Message()], [Message(KafkaError._TRANSPORT)], [Message(), Message()]]
)
def test_loss_of_all_brokers_is_reported_once(
    reader: PlainReader, capsys: pytest.CaptureFixture[str], beside: list[Message]
) -> None:
    reader._consumer.says_cut_off = True
    reader._consumer.next = beside
    assert reader.read(10, 0.0) == beside
    assert reader.read(10, 0.0) == []
    assert capsys.readouterr().err == NOTE


@pytest.mark.parametrize("answer", [None, KafkaError._PARTITION_EOF])
def test_loss_of_all_brokers_is_reported_again_after_a_return(
    reader: PlainReader, capsys: pytest.CaptureFixture[str], answer: int | None
) -> None:
    for _ in range(2):
        reader._consumer.says_cut_off = True
        reader.read(10, 0.0)
        assert capsys.readouterr().err == NOTE
        reader.brokers.is_anyone_there = True
        reader._consumer.next = [Message(answer)]
        reader.read(10, 0.0)
        assert capsys.readouterr().err == ""
