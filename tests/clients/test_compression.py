"""Every client's every codec, idempotent and not, read back by every client."""

import random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients import CLIENTS, CODECS, Client, Record
from tests.support.clock import START_MS
from tests.support.wire import fetch_batches

_CODEC_BITS = 0b111
PATIENCE_S = 30.0


def records_of(seed: str, *, null_header: bool, count: int = 60) -> list[Record]:
    """Compressible records with nulls, empty values and repeated header names."""
    chance = random.Random(seed)
    headers = (("h", b"1"), ("h", b""), ("n", None if null_header else b"n"))
    made = []
    for number in range(count):
        value = (b"%d " % number) * chance.randrange(1, 200)
        key = chance.choice([None, b"", b"k%d" % number])
        # Some clients refuse a record without key and value.
        made.append(
            Record(
                key=key,
                value=chance.choice([value, value, value, b"", b"" if key is None else None]),
                headers=headers if number % 7 == 0 else (),
                timestamp_ms=START_MS + number,
            )
        )
    return made


@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("codec", CODECS)
def test_all_clients_read_what_one_wrote(
    bootstrap: str, topic: str, writer: Client, codec: str
) -> None:
    expected: list[Record] = []
    for idempotent in (True, False):
        records = records_of(
            f"{writer.name} {codec} {idempotent}", null_header=writer.name != "kafka-python"
        )
        offsets = writer.produce(bootstrap, topic, records, codec=codec, idempotent=idempotent)
        assert offsets == list(range(len(expected), len(expected) + len(records)))
        expected += records
    for reader in CLIENTS:
        assert reader.consume(bootstrap, topic, len(expected)) == expected, reader.name

    batches = fetch_batches(bootstrap, topic)
    assert sum(batch.record_count for batch in batches) == len(expected)
    assert any(batch.producer_id >= 0 for batch in batches)
    assert any(batch.producer_id == -1 for batch in batches)
    assert len(batches) < len(expected), "nothing was batched"


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "1", "12"), ("zstd", "-5", "19")]
)
def test_all_clients_read_what_the_broker_compressed_at_a_level(
    bootstrap: str, topic: str, codec: str, low: str, high: str
) -> None:
    # Text, in which a longer search finds longer matches.
    chance = random.Random(codec)
    words = [b"%x" % chance.getrandbits(24) for _ in range(200)]
    records = [
        Record(
            key=b"k%d" % number,
            value=b" ".join(chance.choices(words, k=100)),
            timestamp_ms=START_MS + number,
        )
        for number in range(40)
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    sizes = {}
    for level in (low, high):
        name = f"{topic}-{level.strip('-')}"
        config = {"compression.type": codec, f"compression.{codec}.level": level}
        made = admin.create_topics([NewTopic(name, 1, 1, config=config)])
        assert made[name].result(PATIENCE_S) is None
        CLIENTS[0].produce(bootstrap, name, records, codec="none", idempotent=False)
        for reader in CLIENTS:
            assert reader.consume(bootstrap, name, len(records)) == records, reader.name
        batches = fetch_batches(bootstrap, name)
        assert {batch.attributes & _CODEC_BITS for batch in batches} == {CODECS.index(codec)}
        sizes[level] = sum(batch.length for batch in batches)
    assert sizes[high] < sizes[low]
