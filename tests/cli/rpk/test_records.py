"""rpk and the rows of the feature table (docs/using/compared.md) about records, on a broker of ours
and on Apache Kafka."""

from __future__ import annotations

import json
import struct
import time
from functools import partial

import pytest

from tests.support.avro import encoded
from tests.support.clients import Confluent, Record
from tests.support.commands import Run, create
from tests.support.feature_table import NO, PARTLY, YES
from tests.support.protobuf import part
from tests.support.registry import Registry
from tests.support.rpk import Commands, Rpk, RpkClaims

pytestmark = pytest.mark.jvm
CLIENT = Confluent()
NOW_MS = time.time_ns() // 1_000_000 - 60_000
BINARY = bytes(range(256))
LINES = 3_000
AVRO_ID, PROTOBUF_ID = 1, 2
ORDER_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
ORDER_PROTOBUF = 'syntax = "proto3"; message Order { int32 id = 1; string name = 2; }'
ORDER = {"id": 7, "name": "seven"}


def test_format_verbs(claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str) -> None:
    create(run, topic)
    written = [Record(b"k%d" % n, b"v%d" % n, (("h", b"x"),), NOW_MS + n) for n in range(3)]
    CLIENT.produce(either, topic, written)
    form = "%t %p %o %k %v %h{%k=%v} %d %V{big16}%v{hex}\\n"
    told = rpk("topic", "consume", topic, "-o", ":end", "-f", form).splitlines()
    assert told[1] == f"{topic} 0 1 k1 v1 h=x {NOW_MS + 1} \x00\x027631"
    read = rpk("topic", "produce", topic, "-f", "%k=%v{hex}\\n", stdin="later=6f6e65\n")
    assert read.startswith("Produced to partition 0 at offset 3")
    [last] = CLIENT.consume(either, topic, 4)[3:]
    assert (last.key, last.value) == (b"later", b"one")
    claim(rpk=YES)


def test_time_range_read(claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str) -> None:
    create(run, topic)
    written = [Record(None, b"%d" % n, (), NOW_MS + 1_000 * n) for n in range(9)]
    CLIENT.produce(either, topic, written)
    times = f"@{NOW_MS + 2_000}:{NOW_MS + 6_000}"
    told = rpk("topic", "consume", topic, "-o", times, "-f", "%v\\n")
    assert told.split() == ["2", "3", "4", "5"]
    assert told == run("consume", topic, "-o", times.replace(":", ":@"))
    claim(rpk=YES)


def test_lossless_json_pipe(
    claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str, commands: Commands
) -> None:
    """What is no text comes out changed, and no JSON is read as records. Sizes and hexadecimal keep
    bytes, without times, and an empty key becomes none."""
    create(run, topic)
    CLIENT.produce(either, topic, [Record(b"k", BINARY, (), NOW_MS)])
    [shown] = rpk.records(topic)
    assert shown["value"].encode() != BINARY
    assert "base64" not in shown
    assert "(for -f json)" not in " ".join(commands.helps["topic produce"].split())
    rpk("topic", "produce", topic, "-f", "%v{json}\\n", stdin=json.dumps(shown))
    [_, copy] = CLIENT.consume(either, topic, 2)
    assert copy.key is None
    assert json.loads(copy.value or b"") == shown, "the whole line is one value"
    claim(rpk=NO)


def test_tombstones(claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str) -> None:
    """It makes one of an empty value, too, and shows an empty value of others as it shows none."""
    create(run, topic)
    CLIENT.produce(either, topic, [Record(b"empty", b"")])
    rpk("topic", "produce", topic, "--tombstone", "-k", "gone", stdin="\n")
    rpk("topic", "produce", topic, "-k", "too", stdin="\n")
    found = [(one.key, one.value) for one in CLIENT.consume(either, topic, 3)]
    assert found == [(b"empty", b""), (b"gone", None), (b"too", None)]
    assert ["value" in one for one in rpk.records(topic)] == 3 * [False]
    told = rpk("topic", "consume", topic, "-o", ":end", "-f", "%V[%v]\n")
    assert told.splitlines() == 3 * ["0[]"]
    claim(rpk=PARTLY)


def test_avro_and_protobuf(claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str) -> None:
    """By a registry of schemas, and with none there is no way."""
    create(run, topic)
    produce = partial(rpk, "topic", "produce", topic)
    with Registry({AVRO_ID: ORDER_AVRO, PROTOBUF_ID: ORDER_PROTOBUF}) as registry:
        at = ("-X", f"registry.hosts={registry.url.removeprefix('http://')}")
        for number in (AVRO_ID, PROTOBUF_ID):
            produce("--schema-id", str(number), *at, stdin=json.dumps(ORDER) + "\n")
        decode = ("--use-schema-registry=value", "-f", "%v\\n", *at)
        told = rpk("topic", "consume", topic, "-o", ":end", *decode).splitlines()
    assert [json.loads(line) for line in told] == [ORDER, ORDER]
    avro, protobuf = (one.value or b"" for one in CLIENT.consume(either, topic, 2))
    assert avro == struct.pack(">bi", 0, AVRO_ID) + encoded(ORDER_AVRO, ORDER)
    # The first message of its file is named by one byte.
    assert protobuf[:6] == struct.pack(">bib", 0, PROTOBUF_ID, 0)
    fields = (part(1, 7), part(2, "seven"))
    assert protobuf[6:] in (b"".join(fields), b"".join(reversed(fields)))
    claim(rpk=YES)


def test_message_export(claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str) -> None:
    create(run, topic)
    values = [b"one", b"two\nlines", b"three"]
    CLIENT.produce(either, topic, [Record(b"k", one, (), NOW_MS) for one in values])
    assert [one["value"].encode() for one in rpk.records(topic)] == values
    claim(rpk=YES)


def test_bulk_produce(claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str) -> None:
    create(run, topic)
    rpk("topic", "produce", topic, stdin="".join(f"{number}\n" for number in range(LINES)))
    found = [one.value for one in CLIENT.consume(either, topic, LINES)]
    assert found == [b"%d" % number for number in range(LINES)]
    claim(rpk=YES)


def test_bulk_dlq_redrive(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("redrive", "dead letter", "dead-letter", "dlq")
    claim(rpk=NO)


def test_segment_dump(claim: RpkClaims, commands: Commands) -> None:
    """`redpanda admin config print` is called dump, too; it prints options."""
    commands.lack_command("dump", "segment", "segments", "log")
    commands.lack("dump log", ".log file", "print-data-log")
    claim(rpk=NO)


def test_mirror_with_group_offsets(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("mirror")
    commands.lack_command("replicate", "migrate", "connect")
    claim(rpk=NO)


def test_jar_free_spark_visible_lag(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("spark")
    claim(rpk=NO)
