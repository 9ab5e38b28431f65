"""Every client's every codec, idempotent and not, read back by every client."""

import random

import pytest

from tests.support.clients import CLIENTS, CODECS, Client, Record
from tests.support.clock import START_MS
from tests.support.wire import fetch_batches

_CODEC_BITS = 0b111


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

    # A client silently stops compressing if a broker's advertised versions do not suit it.
    batches = fetch_batches(bootstrap, topic)
    assert sum(batch.record_count for batch in batches) == len(expected)
    assert {batch.attributes & _CODEC_BITS for batch in batches} == {CODECS.index(codec)}
    assert any(batch.producer_id >= 0 for batch in batches)
    assert any(batch.producer_id == -1 for batch in batches)
    assert len(batches) < len(expected), "nothing was batched"
