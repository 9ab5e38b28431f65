"""``consume --schema`` and ``produce --schema`` at a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.support.avro import encoded, framed
from tests.support.clients import Confluent, Record
from tests.support.commands import Run, create, runner
from tests.support.protobuf import DESCRIPTORS, FILE, part
from tests.support.registry import Proto, Registry

CLIENT = Confluent()
FIELDS = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
VALUES = [encoded(ORDER, {"id": number, "name": f"n{number}"}) for number in range(5)]


@pytest.fixture
def run(broker: TestBroker) -> Run:
    return runner(broker.bootstrap)


@pytest.fixture
def avsc(tmp_path: Path) -> str:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return str(path)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry({1: ORDER, 2: Proto("", FILE)}, {"shop": 2}) as running:
        yield running


def test_a_pipe_copies_values(broker: TestBroker, run: Run, topic: str, avsc: str) -> None:
    copy = f"{topic}-copy"
    for one in (topic, copy):
        create(run, one)
    written = [Record(b"k", one) for one in VALUES] + [Record(b"k", None)]
    CLIENT.produce(broker.bootstrap, topic, written)
    lines = run("consume", topic, "-e", "-f", "jsonl", "--schema", avsc)
    assert json.loads(lines.splitlines()[1])["value"] == {"id": 1, "name": "n1"}
    run("produce", copy, "-f", "jsonl", "--schema", avsc, stdin=lines)
    found = [(one.key, one.value) for one in CLIENT.consume(broker.bootstrap, copy, 6)]
    assert found == [(one.key, one.value) for one in written]


def test_values_are_chosen_by_what_is_in_them(
    broker: TestBroker, run: Run, topic: str, avsc: str
) -> None:
    create(run, topic)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"k", one) for one in VALUES])
    words = ("consume", topic, "-e", "--schema", avsc, "-f", "%o %v{avro}\n")
    assert run(*words, "--filter", "value.id>=4") == '4 {"id":4,"name":"n4"}\n'


def test_what_does_not_fit_ends_after_what_came_before(
    broker: TestBroker, run: Run, topic: str, avsc: str
) -> None:
    create(run, topic, "-p", "1")
    CLIENT.produce(
        broker.bootstrap, topic, [Record(None, one) for one in (*VALUES, b"\x03", VALUES[0])]
    )
    words = ("consume", topic, "-e", "--schema", avsc, "-f", "%o\n")
    error = run(*words, code=1)
    assert error.startswith(f"error[PK103]: {topic} [0] at offset 5: value: ")
    assert run(*words, "--on-bad", "drop").split() == ["0", "1", "2", "3", "4", "6"]
    assert run(*words, "--on-bad", "raw").split() == [str(number) for number in range(7)]
    # A member of a group commits what was printed, and no more.
    group = ("consume", topic, "-g", topic, "-n", "7", "--schema", avsc)
    assert f"{topic} [0] at offset 5" in run(*group, code=1)
    assert run("group", "export", topic).strip() == f"{topic},0,5"


def test_what_does_not_fit_is_not_written(
    broker: TestBroker, run: Run, topic: str, avsc: str
) -> None:
    create(run, topic)
    lines = '{"id":1,"name":"a"}\n{"id":"x","name":"b"}\n{"id":3,"name":"c"}\n'
    error = run("produce", topic, "--schema", avsc, stdin=lines, code=9)
    assert "line 2 does not fit --schema: id: 'x' is no long; 1 record before it was" in error
    assert run("consume", topic, "-e", "--schema", avsc) == '{"id":1,"name":"a"}\n'
    assert run("produce", topic, "--schema", avsc, "--dry-run", stdin=lines, code=2)


def test_a_registry(
    broker: TestBroker, run: Run, topic: str, avsc: str, registry: Registry
) -> None:
    create(run, topic)
    error = run("produce", topic, '{"id":1,"name":"a"}', "--schema", registry.url, code=4)
    assert error.startswith("error[PK102]: ")
    run("produce", topic, '{"id":1,"name":"a"}', "--schema", avsc, "--register", registry.url)
    run("produce", topic, '{"id":2,"name":"b"}', "--schema", registry.url)
    run("produce", topic, '{"id":3}', "--schema", f"{registry.url}#shop:Order")
    assert registry.subjects[f"{topic}-value"] == 1
    found = [one.value for one in CLIENT.consume(broker.bootstrap, topic, 3)]
    second = encoded(ORDER, {"id": 2, "name": "b"})
    assert found[1:] == [framed(1, second), b"\0\0\0\0\2\x02\x02" + part(1, 3)]
    shown = run("consume", topic, "-e", "--schema", registry.url).splitlines()
    assert [json.loads(line)["id"] for line in shown] == [1, 2, "3"]
    registry.failing = True
    error = run("consume", topic, "-e", "--schema", registry.url, "--on-bad", "drop", code=3)
    assert error.startswith("error[PK101]: ")


def test_keys_have_a_schema_of_their_own(
    broker: TestBroker, run: Run, topic: str, tmp_path: Path
) -> None:
    create(run, topic)
    (tmp_path / "shop.desc").write_bytes(DESCRIPTORS)
    given = ("--key-schema", f"{tmp_path / 'shop.desc'}:shop.Line")
    run("produce", topic, "-k", '{"sku":"x"}', "plain", *given)
    [found] = CLIENT.consume(broker.bootstrap, topic, 1)
    assert (found.key, found.value) == (part(1, "x"), b"plain")
    assert run("consume", topic, "-e", "-f", "%k{protobuf} %v\n", *given) == '{"sku": "x"} plain\n'
