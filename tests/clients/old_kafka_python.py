"""What a user of kafka-python 1.4.7 does, run by test_old_clients.py with that version on the path.

``old_kafka_python.py BOOTSTRAP VERSION TOPIC COMMAND [ARGUMENT]`` speaks as to a broker of VERSION.
It prints what it read, one JSON list a line: offset, timestamp, key, value.
"""

import json
import sys
import time
from importlib import import_module

# Its own copy of six cannot be imported by Python 3.12 and later.
for name in ("six", "six.moves"):
    sys.modules[f"kafka.vendor.{name}"] = import_module(name)

import kafka  # noqa: E402

PATIENCE_S = 30
LINGER_MS = 20


def produce(common: dict[str, object], topic: str, codec: str) -> None:
    """Sends each line of the standard input as a value."""
    compression = None if codec == "none" else codec
    producer = kafka.KafkaProducer(compression_type=compression, linger_ms=LINGER_MS, **common)
    sent = [
        producer.send(topic, value=line.encode(), key=b"key", partition=0)
        for line in sys.stdin.read().splitlines()
    ]
    for one in sent:
        one.get(timeout=PATIENCE_S)
    producer.close()


def read(consumer: kafka.KafkaConsumer, count: int) -> None:
    """Prints ``count`` records, fewer after some time."""
    deadline = time.monotonic() + PATIENCE_S
    while count > 0 and time.monotonic() < deadline:
        found = consumer.poll(timeout_ms=500, max_records=count)
        for record in (record for records in found.values() for record in records):
            count -= 1
            key = record.key and record.key.decode()
            print(json.dumps([record.offset, record.timestamp, key, record.value.decode()]))


def consume(common: dict[str, object], topic: str, count: str) -> None:
    """Reads the first partition from its beginning."""
    consumer = kafka.KafkaConsumer(auto_offset_reset="earliest", **common)
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    read(consumer, int(count))
    beginning, end = consumer.beginning_offsets([place]), consumer.end_offsets([place])
    assert beginning == {place: 0}, beginning
    assert end[place] >= int(count), end
    consumer.close()


def join(common: dict[str, object], topic: str, count: str) -> None:
    """Reads as the group of the topic's name, and commits."""
    consumer = kafka.KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **common,
    )
    read(consumer, int(count))
    consumer.commit()
    consumer.close()


def main() -> None:
    bootstrap, version, topic, command, argument = sys.argv[1:]
    numbers = tuple(int(number) for number in version.split("."))
    common: dict[str, object] = {"bootstrap_servers": bootstrap, "api_version": numbers}
    {"produce": produce, "consume": consume, "join": join}[command](common, topic, argument)


if __name__ == "__main__":
    assert kafka.__version__ == "1.4.7", kafka.__version__
    main()
