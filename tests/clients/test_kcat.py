"""kcat with Debian's librdkafka, which is older than that of test_confluent.py."""

import json

import pytest

from tests.support.clients import CODECS
from tests.support.kcat import needs_kcat, run_kcat

pytestmark = needs_kcat


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    done = run_kcat("-b", bootstrap, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"key{number}:value {number}\n" for number in range(100))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "a=b", stdin=lines)
    read = ("-C", "-t", topic, "-p", "0", "-e", "-q")
    assert kcat(bootstrap, *read, "-K:") == lines
    assert kcat(bootstrap, *read, "-o", "97", "-f", "%t %p %o %k %s %h\n") == "".join(
        f"{topic} 0 {number} key{number} value {number} a=b\n" for number in (97, 98, 99)
    )
    assert kcat(bootstrap, *read, "-o", "-2", "-f", "%o\n") == "98\n99\n"
    assert kcat(bootstrap, *read, "-c", "3", "-f", "%o\n") == "0\n1\n2\n"


def test_null_values_and_times(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K:", "-Z", stdin="a:\nb:1\n")
    read = kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%k %S %T\n").splitlines()
    assert [line.split()[:2] for line in read] == [["a", "-1"], ["b", "1"]]
    timestamp_ms = int(read[1].split()[2])
    found = kcat(bootstrap, "-Q", "-t", f"{topic}:0:{timestamp_ms + 60_000}")
    assert "offset -1" in found
    found = kcat(bootstrap, "-Q", "-t", f"{topic}:0:1")
    assert "offset 0" in found


def test_metadata(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, stdin="x\n")
    found = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert [broker["name"] for broker in found["brokers"]] == [bootstrap]
    (one,) = found["topics"]
    assert one["topic"] == topic
    assert [(part["partition"], part["leader"]) for part in one["partitions"]] == [
        (0, found["brokers"][0]["id"])
    ]
