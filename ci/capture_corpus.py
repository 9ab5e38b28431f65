"""Records real clients' frames into rust/wire/tests/corpus: ``python ci/capture_corpus.py``.

Every client runs through a capturing proxy in front of our own broker. A few different frames are
kept for each client, API and version; ``rust/wire/tests/corpus/README.md`` describes the files.
They replace earlier frames of the same client version.
"""

import asyncio
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import aiokafka  # noqa: E402
import kafka  # noqa: E402
from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, OffsetSpec  # noqa: E402

from pyrklog.testing import TestBroker  # noqa: E402
from pyrklog.testing.broker import free_port  # noqa: E402
from tests.support import jvm  # noqa: E402
from tests.support.clients import AioKafka, Client, Confluent, KafkaPython, Record  # noqa: E402
from tests.support.clock import START_MS  # noqa: E402
from tests.support.proxy import CapturingProxy, Frame  # noqa: E402

CORPUS = ROOT / "rust" / "wire" / "tests" / "corpus"
FRAME_BYTES_MAX = 4096
FRAMES_PER_KIND_MAX = 6
APIS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    18: "ApiVersions",
    23: "OffsetForLeaderEpoch",
}
RECORDS = [
    Record(b"key", b"value " * 5, (("header", b"1"),), START_MS),
    Record(None, b"x", (), START_MS + 1),
    Record(b"gone", None, (), START_MS + 2),
]


def python_client(client: Client) -> Callable[[str, str], None]:
    """Writes with every codec, idempotent and not; reads back."""

    def drive(bootstrap: str, topic: str) -> None:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            for idempotent in (True, False):
                client.produce(bootstrap, topic, RECORDS, codec=codec, idempotent=idempotent)
        assert len(client.consume(bootstrap, topic, 30)) == 30

    return drive


def kafka_python(bootstrap: str, topic: str) -> None:
    """Offsets by time and place, too."""
    python_client(KafkaPython())(bootstrap, topic)
    place = kafka.TopicPartition(topic, 0)
    consumer: Any = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    consumer.beginning_offsets([place])
    consumer.offsets_for_times({place: START_MS})
    consumer.close()


def aio_kafka(bootstrap: str, topic: str) -> None:
    """Offsets by time and place, too."""
    python_client(AioKafka())(bootstrap, topic)
    place = aiokafka.TopicPartition(topic, 0)

    async def ask() -> None:
        consumer: Any = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        await consumer.start()
        await consumer.beginning_offsets([place])
        await consumer.offsets_for_times({place: START_MS})
        await consumer.stop()

    asyncio.run(ask())


def confluent(bootstrap: str, topic: str) -> None:
    """And librdkafka's other requests."""
    python_client(Confluent())(bootstrap, topic)
    partition = TopicPartition(topic, 0, START_MS)
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.offsets_for_times([partition], timeout=20)
    consumer.get_watermark_offsets(partition, timeout=20)
    consumer.close()
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for spec in (OffsetSpec.earliest(), OffsetSpec.max_timestamp()):
        (found,) = admin.list_offsets({partition: spec}).values()
        found.result(20)


def kcat(bootstrap: str, topic: str) -> None:
    """Debian's kcat, which has an older librdkafka."""

    def run(*arguments: str, stdin: str = "") -> None:
        command = ["kcat", "-b", bootstrap, *arguments]
        subprocess.run(command, input=stdin, text=True, check=True, stdout=subprocess.DEVNULL)

    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        run("-P", "-t", topic, "-p", "0", "-z", codec, stdin="one\ntwo\n")
    run("-C", "-t", topic, "-e", "-q")
    run("-Q", "-t", f"{topic}:0:1")
    run("-L")


def java(bootstrap: str, topic: str) -> None:
    """The program of the Java tests; it expects records of another client."""
    for turn in range(5):
        values = [b"python %d" % (10 * turn + number) for number in range(10)]
        Confluent().produce(
            bootstrap, f"{topic}from-python", [Record(None, value) for value in values]
        )
    jvm.run(str(ROOT / "tests" / "clients" / "Client.java"), bootstrap, topic, timeout_s=120)


def kcat_version() -> str:
    shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+)", shown)
    assert found, shown
    return found[1]


def clients() -> dict[str, Callable[[str, str], None]]:
    """Label of frames -> what drives the client."""
    found: dict[str, Callable[[str, str], None]] = {
        f"confluent-kafka-{version('confluent-kafka')}": confluent,
        f"kafka-python-{version('kafka-python')}": kafka_python,
        f"aiokafka-{version('aiokafka')}": aio_kafka,
        "java-3.9.1": java,
    }
    if shutil.which("kcat"):
        found[f"kcat-{kcat_version()}"] = kcat
    else:
        print("kcat is not installed; its frames stay as they are")
    return found


def chosen(frames: Iterable[Frame], label: str) -> dict[str, bytes]:
    """File name -> frame: the first few of each API and version that differ beyond their ids."""
    kept: dict[str, bytes] = {}
    seen: set[str] = set()
    for frame in frames:
        # Java's program also uses librdkafka; the client id shows that.
        foreign = label.startswith("java") and b"rdkafka" in frame.payload[:30]
        if frame.label != label or frame.api_key not in APIS or foreign:
            continue
        shape = hashlib.sha256(frame.payload[:4] + frame.payload[8:]).hexdigest()
        if len(frame.payload) > FRAME_BYTES_MAX or shape in seen:
            continue
        seen.add(shape)
        kind = f"{label}_{APIS[frame.api_key]}_v{frame.version}"
        for number in range(1, FRAMES_PER_KIND_MAX + 1):
            if f"{kind}_{number}.bin" not in kept:
                kept[f"{kind}_{number}.bin"] = frame.payload
                break
    return kept


def main() -> None:
    port = free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    own = TestBroker(options=advertised, faults=False)
    with own as broker, CapturingProxy(broker.bootstrap, port) as proxy:
        bootstrap = f"127.0.0.1:{port}"
        for number, (label, drive) in enumerate(clients().items()):
            proxy.label = label
            drive(bootstrap, f"corpus-{number}")
            found = chosen(list(proxy.frames), label)
            for old in CORPUS.glob(f"{label}_*.bin"):
                old.unlink()
            for name, payload in found.items():
                (CORPUS / name).write_bytes(payload)
            print(f"{label}: {len(found)} frames, {sum(map(len, found.values()))} bytes")


if __name__ == "__main__":
    main()
