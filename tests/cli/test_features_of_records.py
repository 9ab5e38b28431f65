"""Rows of the feature table (docs/using/compared.md) about records: what each tool reads and
writes, on a broker of ours and on Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyrklog
from pyrklog.testing import TestBroker
from tests.support.avro import encoded
from tests.support.clients import Confluent, Record
from tests.support.commands import Run, create, runner
from tests.support.feature_claims import Claims, OtherTools, kcat
from tests.support.feature_table import NO, PARTLY, YES
from tests.support.groups import create_topic, fill
from tests.support.kafka_tools import KafkaTools
from tests.support.kcat import needs_kcat
from tests.support.mirroring import Pair, commit, rows
from tests.support.protobuf import DESCRIPTORS, part

pytestmark = [
    pytest.mark.jvm,
    needs_kcat,
]
CLIENT = Confluent()
NOW_MS = time.time_ns() // 1_000_000 - 60_000
BINARY = bytes(range(256))
LINES = 3_000


def console(tools: KafkaTools, at: str, topic: str, count: int, *words: str) -> list[str]:
    """Lines of the console consumer, which ends after so many records."""
    place = ("--bootstrap-server", at, "--topic", topic, "--partition", "0", "--offset", "earliest")
    told = tools("console-consumer", *place, "--max-messages", str(count), *words)
    assert told.status == 0, told.text
    return [line for line in told.text.splitlines() if not line.startswith("Processed a total")]


def test_format_verbs(
    claim: Claims, either: str, run: Run, topic: str, tools: KafkaTools, others: OtherTools
) -> None:
    create(run, topic)
    written = [Record(b"k%d" % n, b"v%d" % n, (("h", b"x"),), NOW_MS + n) for n in range(3)]
    CLIENT.produce(either, topic, written)
    ours = run("consume", topic, "-e", "-f", "%t %p %o %k %v %h %T\n")
    theirs = kcat("-b", either, "-C", "-t", topic, "-e", "-q", "-f", "%t %p %o %k %s %h %T\n")
    assert ours == theirs.decode()
    assert ours.splitlines()[1] == f"{topic} 0 1 k1 v1 h=x {NOW_MS + 1}"
    chosen = [("--property", f"print.{one}=true") for one in ("offset", "key")]
    told = console(tools, either, topic, 3, *(word for pair in chosen for word in pair))
    assert told == [f"Offset:{n}\tk{n}\tv{n}" for n in range(3)]
    assert "--format " not in others.kafka["console-consumer"]
    claim(pyrklog=YES, kafka=PARTLY, kcat=YES)


def test_time_range_read(
    claim: Claims, either: str, run: Run, topic: str, tools: KafkaTools
) -> None:
    create(run, topic)
    CLIENT.produce(
        either, topic, [Record(None, b"%d" % n, (), NOW_MS + 1_000 * n) for n in range(9)]
    )
    first, end = NOW_MS + 2_000, NOW_MS + 6_000
    ours = run("consume", topic, "-o", f"@{first}:@{end}")
    words = ("-C", "-t", topic, "-p", "0", "-o", f"s@{first}", "-o", f"e@{end}", "-e", "-q")
    assert ours == kcat("-b", either, *words).decode() == "2\n3\n4\n5\n"
    at = ("--bootstrap-server", either, "--topic", topic, "--partition", "0")
    told = tools("console-consumer", *at, "--offset", f"@{first}")
    assert told.status == 1
    assert "offset" in told.text
    claim(pyrklog=YES, kafka=NO, kcat=YES)


def test_lossless_json_pipe(
    claim: Claims, either: str, run: Run, topic: str, others: OtherTools
) -> None:
    """tests/unit/cli/test_records.py has the property; here it is one case at two brokers."""
    copy = f"{topic}-copy"
    for one in (topic, copy):
        create(run, one)
    written = [
        Record(BINARY, b"", (("h", b"1"), ("h", None)), NOW_MS),
        Record(None, None, (("", b""),), NOW_MS + 1),
        Record(b"", BINARY, (), NOW_MS + 2),
    ]
    CLIENT.produce(either, topic, written)
    run("produce", copy, "-f", "jsonl", stdin=run("consume", topic, "-e", "-f", "jsonl"))
    assert CLIENT.consume(either, copy, 3) == written
    shown = kcat("-b", either, "-C", "-t", topic, "-e", "-q", "-J").splitlines()
    payload = json.loads(shown[2].decode("utf-8", "replace"))["payload"]
    assert payload.encode() != BINARY
    assert "json" not in others.kafka["console-producer"].lower()
    produced = others.kcat.split("Producer options:")[1].split("Consumer options:")[0]
    assert "JSON" not in produced
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_tombstones(claim: Claims, either: str, run: Run, topic: str, tools: KafkaTools) -> None:
    create(run, topic)
    run("produce", topic, "--tombstone", "-k", "ours")
    kcat("-b", either, "-P", "-t", topic, "-Z", "-K:", stdin="theirs:\n")
    properties = ("parse.key=true", "key.separator=:", "null.marker=NULL")
    words = [word for one in properties for word in ("--property", one)]
    at = ("--bootstrap-server", either, "--topic", topic)
    assert tools("console-producer", *at, *words, stdin="apache:NULL\n").status == 0
    found = [(one.key, one.value) for one in CLIENT.consume(either, topic, 3)]
    assert found == [(b"ours", None), (b"theirs", None), (b"apache", None)]
    claim(pyrklog=YES, kafka=YES, kcat=YES)


def test_avro_and_protobuf(
    claim: Claims, either: str, run: Run, topic: str, others: OtherTools, tmp_path: Path
) -> None:
    """By files; tests/cli/test_schemas.py has a registry, and tests/scan the same in Python."""
    messages = f"{topic}-messages"
    files = {"order.avsc": tmp_path / "order.avsc", "shop.desc": tmp_path / "shop.desc"}
    for one in (topic, messages):
        create(run, one)
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    order = {"id": 7, "name": "seven"}
    CLIENT.produce(either, topic, [Record(None, encoded(schema, order))])
    CLIENT.produce(either, messages, [Record(None, part(1, 7) + part(2, "seven"))])

    def read(name: str, **decoding: Any) -> Any:
        scan = pyrklog.scan(name, bootstrap_servers=either, columns=["value"], **decoding)
        [row] = scan.reader().read_all().to_pylist()
        return row["value"]

    assert read(topic, decode="avro", schema=schema) == order
    typed = read(messages, decode="protobuf", schema=DESCRIPTORS, message="shop.Order")
    assert (typed["id"], typed["name"]) == (7, "seven")

    files["order.avsc"].write_text(json.dumps(schema))
    files["shop.desc"].write_bytes(DESCRIPTORS)
    for name, given in ((topic, files["order.avsc"]), (messages, f"{files['shop.desc']}:Order")):
        shown = run("consume", name, "-e", "--schema", str(given))
        assert json.loads(shown) in (order, {"id": "7", "name": "seven"})
        run("produce", name, "--schema", str(given), stdin=shown)
        first, second = CLIENT.consume(either, name, 2)
        assert first.value == second.value
    words = ("-C", "-t", topic, "-e", "-q", "-s", "value=avro", "-r", "http://127.0.0.1:1")
    assert b"lacks avro" in kcat("-b", either, *words, code=1).lower()
    others.kafka_lacks("avro", "protobuf")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_message_export(
    claim: Claims, either: str, run: Run, topic: str, tools: KafkaTools, tmp_path: Path
) -> None:
    create(run, topic)
    values = [b"one", b"two\nlines", b"three"]
    CLIENT.produce(either, topic, [Record(b"k", one, (), NOW_MS) for one in values])
    file = tmp_path / "export.jsonl"
    file.write_text(run("consume", topic, "-e", "-f", "jsonl"))
    ours = [json.loads(line)["value"].encode() for line in file.read_text().splitlines()]
    exported = kcat("-b", either, "-C", "-t", topic, "-e", "-q", "-J").splitlines()
    theirs = [json.loads(line)["payload"].encode() for line in exported]
    assert ours == theirs == values
    assert len(console(tools, either, topic, 3)) == 4
    claim(pyrklog=YES, kafka=PARTLY, kcat=YES)


def test_bulk_produce(
    claim: Claims, either: str, run: Run, topic: str, tools: KafkaTools, tmp_path: Path
) -> None:
    create(run, topic)
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\n" for number in range(LINES)))
    run("produce", topic, "--from", str(file))
    kcat("-b", either, "-P", "-t", topic, "-l", str(file))
    at = ("--bootstrap-server", either, "--topic", topic)
    assert tools("console-producer", *at, stdin=file.read_text()).status == 0
    found = [one.value for one in CLIENT.consume(either, topic, 3 * LINES)]
    assert found == 3 * [b"%d" % number for number in range(LINES)]
    claim(pyrklog=YES, kafka=YES, kcat=YES)


def test_bulk_dlq_redrive(claim: Claims, run: Run, topic: str, others: OtherTools) -> None:
    """More of it is in test_redrive.py."""
    dead = f"{topic}-dlq"
    for one in (topic, dead):
        create(run, one)
    header = {"key": "__connect.errors.topic", "value": topic}
    lines = [json.dumps({"value": str(n), "headers": [header]}) for n in range(100)]
    run("produce", dead, "-f", "jsonl", stdin="\n".join(lines))
    [row] = json.loads(run("redrive", dead, "-o", "json"))["items"]
    assert (row["topic"], row["moved"]) == (topic, 100)
    assert sorted(run("consume", topic, "-e").split(), key=int) == [str(n) for n in range(100)]
    others.lack("redrive", "dead letter", "dead-letter")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_segment_dump(
    claim: Claims,
    new_broker: Callable[..., TestBroker],
    topic: str,
    tools: KafkaTools,
    others: OtherTools,
) -> None:
    broker = new_broker().start()
    create(runner(broker.bootstrap), topic)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"k%d" % n, b"v%d" % n) for n in range(20)])
    assert broker.stop() == 0
    [segment] = (broker.data / "logs" / f"{topic}-0").glob("*.log")
    ours = runner(broker.bootstrap)("log", "dump", str(segment), "--records", "-o", "jsonl")
    found = [json.loads(line) for line in ours.splitlines()]
    told = tools("dump-log", "--files", str(segment), "--print-data-log")
    assert told.status == 0
    theirs = [line.split() for line in told.lines if line.startswith("| offset:")]
    records = [one for one in found if one["kind"] == "record"]
    assert [one["offset"] for one in records] == [int(words[2]) for words in theirs]
    assert [words[-1] for words in theirs] == [f"v{n}" for n in range(20)]
    others.kcat_lacks("segment", "dump log")
    claim(pyrklog=YES, kafka=YES, kcat=NO)


def test_mirror_with_group_offsets(
    claim: Claims, broker: TestBroker, apache_kafka: str, topic: str, others: OtherTools
) -> None:
    """From ours to Apache's; more of it is in tests/mirror, MirrorMaker 2 too."""
    create_topic(broker.bootstrap, topic, 2)
    fill(broker.bootstrap, topic, 2, 50)
    commit(broker.bootstrap, topic, topic, {0: 20, 1: 30})
    pair = Pair(broker.bootstrap, apache_kafka, topic)
    said = pair.once("--topics", topic, "--groups", topic, "--policy", "identity")
    assert "copied 100 records" in said
    assert rows(apache_kafka, topic) == rows(broker.bootstrap, topic)
    there = runner(apache_kafka)("group", "export", topic)
    assert sorted(there.splitlines()) == [f"{topic},0,20", f"{topic},1,30"]
    others.kcat_lacks("mirror")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)
