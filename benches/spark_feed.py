"""Writes so many records a second: ``python -m benches.spark_feed BOOTSTRAP TOPIC PER_SECOND
RECORDS``. Their timestamps say when they were due."""

import sys
import time

from confluent_kafka import Producer

ROWS_PER_S = 10_000
WARM_S = 20
_STEP_S = 0.01
_VALUE = b"x" * 100


def main(bootstrap: str, topic: str, per_second: str, records: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    rate, count, sent = int(per_second), int(records), 0
    began_s, began = time.time(), time.monotonic()
    while sent < count:
        due = min(count, int((time.monotonic() - began) * rate))
        for number in range(sent, due):
            producer.produce(topic, _VALUE, timestamp=int(1000 * (began_s + number / rate)))
        sent = due
        producer.poll(_STEP_S)
    if producer.flush(60):
        raise SystemExit(f"{topic} was not written")


if __name__ == "__main__":
    main(*sys.argv[1:])
