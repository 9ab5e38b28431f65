"""``pyrklog cluster txns`` on our broker and on Apache Kafka."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from tests.support import kafka_tools
from tests.support.clients import TIMEOUT_S
from tests.support.commands import Run, create, runner
from tests.support.waiting import wait_until
from tests.support.wire import PRODUCE, Connection, Reader, produce_body, record_batch, string

TRANSACTIONAL = 0x10
PRODUCER_ID = 4711
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def run(either: str) -> Run:
    return runner(either)


def items(run: Run, *command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("cluster", "txns", *command, "-o", "json"))[
        "items"
    ]
    return found


def open_transaction(bootstrap: str, topic: str) -> confluent_kafka.Producer:
    """A producer with a record in partition 0 of its open transaction."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-id"}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "in a transaction", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_an_open_transaction_is_seen_and_aborted(run: Run, either: str, topic: str) -> None:
    create(run, topic, "-p", "2")
    name = f"{topic}-id"
    producer = open_transaction(either, topic)
    (listed,) = [one for one in items(run, "list") if one["transactional_id"] == name]
    assert (listed["coordinator"], listed["state"]) == (1, "Ongoing")
    number = str(listed["producer_id"])
    assert listed in items(run, "list", "--state", "ongoing", "--producer-id", number)
    assert items(run, "list", "--state", "Empty", "--producer-id", number) == []
    assert items(run, "list", "--producer-id", number, "--longer-than", "0s") == [listed]
    assert items(run, "list", "--producer-id", number, "--longer-than", "1h") == []

    (described,) = items(run, "describe", name)
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["partitions"] == [f"{topic}-0"]
    assert described["age_s"] >= 0
    (known,) = items(run, "producers", topic)
    assert (known["partition"], known["start_offset"]) == (0, 0)
    assert known["producer_id"] == listed["producer_id"]

    there = ["abort", "--partition", f"{topic}:0", "--start-offset", "0"]
    told = run("cluster", "txns", *there, "-y", code=1)
    assert f"transactional id {name} has this transaction, in Ongoing" in told
    assert "needs to be confirmed" in run("cluster", "txns", "abort", name, code=2)
    (would,) = items(run, "abort", name, "--dry-run")
    assert (would["result"], would["partitions"]) == ("would be aborted", [f"{topic}-0"])
    (aborted,) = items(run, "abort", name, "-y")
    assert (aborted["result"], aborted["transactional_id"]) == ("aborted", name)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")

    assert run("consume", topic, "-e", "--read-committed") == ""
    told = run("cluster", "txns", "abort", name, "-y", code=4)
    assert "has no open transaction, it is in " in told


def said(bootstrap: str, *arguments: str) -> tuple[str, str]:
    """A command's standard output and error; it must end well."""
    done = CliRunner().invoke(app, ["-b", bootstrap, *arguments])
    assert done.exit_code == 0, done.stderr
    return done.stdout, done.stderr


def test_readers_of_committed_records_say_what_stops_them(
    run: Run, either: str, topic: str
) -> None:
    create(run, topic, "-p", "1")
    run("produce", topic, "before")
    producer = open_transaction(either, topic)
    run("produce", topic, "after")
    why = f"{topic} [0] stopped at 1 of 3: an open transaction begins there"
    fix = f"see `pyrklog cluster txns producers {topic}`"
    for options in (["-e"], ["-e", "-g", f"{topic}-g"], ["-o", ":end"], ["-o", ":3"]):
        read = said(either, "consume", topic, "--read-committed", *options)
        assert read == ("before\n", f"note: {why}; {fix}\n")
    assert said(either, "consume", topic, "-o", ":1", "--read-committed") == ("before\n", "")
    assert said(either, "consume", topic, "-e")[1] == ""

    copy = ["topic", "copy", topic, f"{topic}-copy", "--create", "--read-committed"]
    told = run(*copy, code=9)
    assert told == f"error[PK54]: {why}\n  fix: {fix}, and copy the rest once it has ended\n"
    assert run("consume", f"{topic}-copy", "-e") == "before\n"
    assert "would stop at 1 of 3" in run(*copy, "--dry-run", code=9)
    assert "stopped at 1 of 2" in run(*copy, "--before", "2", code=9)
    run(*copy, "--before", "1")
    run(*copy, "--from", "end")
    producer.commit_transaction(TIMEOUT_S)
    run(*copy, "--from", "1")
    copied = run("consume", f"{topic}-copy", "-e").splitlines()
    assert copied[-2:] == ["in a transaction", "after"]


def test_a_cluster_that_is_too_small_for_internal_topics_says_so(
    new_broker: Callable[..., TestBroker],
) -> None:
    factors = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    broker = new_broker(options=dict.fromkeys(factors, 3)).start()
    lists = (["group", "list"], ["cluster", "txns", "list"])
    for command, factor in zip(lists, factors, strict=True):
        _, err = said(broker.bootstrap, *command)
        assert f"needs 3 brokers ({factor}), and 1 broker is alive" in err
        assert said(broker.bootstrap, *command, "-q")[1] == ""
    alone = new_broker().start()
    assert [said(alone.bootstrap, *command)[1] for command in lists] == ["", ""]


def test_where_no_transaction_hangs_others_are_pointed_to(
    run: Run, either: str, topic: str
) -> None:
    create(run, topic, "-p", "1")
    owned = open_transaction(either, topic)
    _, told = said(either, "cluster", "txns", "list", "--hanging", "-t", topic)
    assert "has been idle for 15m (--longer-than)" in told
    assert "`pyrklog cluster txns list --state Ongoing`" in told
    _, told = said(
        either, "cluster", "txns", "list", "--hanging", "-t", topic, "--longer-than", "0s"
    )
    assert "has been idle for 0s" in told
    _, told = said(
        either, "cluster", "txns", "list", "--hanging", "-t", topic, "--longer-than", "5"
    )
    assert "has been idle for 5 s (--longer-than)" in told
    create(run, f"{topic}-plain")
    there = ["--partition", f"{topic}-plain:0", "--start-offset", "0", "-y"]
    told = run("cluster", "txns", "abort", *there, code=4)
    assert f"{topic}-plain [0] has no open transaction\n  fix: see" in told
    owned.abort_transaction(TIMEOUT_S)


@pytest.fixture
def unverified(run: Run) -> Iterator[None]:
    """The cluster accepts transactions that their coordinator does not know."""
    run("config", "alter", "broker", "default", "--set", f"{VERIFICATION}=false")

    def is_off() -> bool:
        shown = run("config", "describe", "broker", "1", "-k", VERIFICATION, "-o", "csv")
        return f"{VERIFICATION},false," in shown

    wait_until(is_off, "partitions of transactions are still verified")
    yield
    run("config", "alter", "broker", "default", "--unset", VERIFICATION)


def leave_hanging(bootstrap: str, topic: str, offsets: range) -> None:
    """Transactional batches, an hour old, of a producer that no coordinator knows."""
    with Connection(bootstrap) as connection:
        for sequence in offsets:
            batch = record_batch(
                [b"hangs"], attributes=TRANSACTIONAL, producer=(PRODUCER_ID, 3, sequence)
            )
            body = string("nobody") + produce_body(topic, batch)[len(string(None)) :]
            answer = Reader(connection.request(PRODUCE, 7, body))
            answer.take(4)
            assert answer.string() == topic
            answer.take(8)
            assert answer.number("h") == 0


@pytest.mark.jvm
@pytest.mark.usefixtures("unverified")
def test_a_hanging_transaction_is_found_and_aborted(run: Run, either: str, topic: str) -> None:
    create(run, topic, "-p", "2")
    run("produce", topic, "before", "-p", "0")
    leave_hanging(either, topic, range(2))
    run("produce", topic, "after", "-p", "0")
    owned = open_transaction(either, topic)
    assert run("consume", topic, "-e", "--read-committed").split() == ["before"]

    everywhere = [one for one in items(run, "list", "--hanging") if one["topic"] == topic]
    (hanging,) = items(run, "list", "--hanging", "-t", f"{topic}:0", "--longer-than", "0s")
    assert [one | {"age_s": 0} for one in everywhere] == [hanging | {"age_s": 0}]
    assert (hanging["producer_id"], hanging["producer_epoch"]) == (PRODUCER_ID, 3)
    assert (hanging["start_offset"], hanging["coordinator_epoch"]) == (1, -1)
    assert hanging["age_s"] >= 3600
    assert items(run, "list", "--hanging", "-t", f"{topic}:1") == []
    assert items(run, "list", "--hanging", "-t", topic, "--longer-than", "2h") == []
    (again,) = items(run, "list", "--hanging", "-t", topic, "--broker", "1")
    assert again | {"age_s": 0} == hanging | {"age_s": 0}
    (theirs,) = kafka_tools.run(either, [f"transactions find-hanging --topic {topic}"])
    assert f"{topic} 0 {PRODUCER_ID} 3 -1 1 " in theirs.lines[-1]

    abort = ["abort", "--partition", f"{topic}:0", "--start-offset"]
    told = run("cluster", "txns", *abort, "0", "-y", code=4)
    assert f"no open transaction of {topic} [0] starts at 0\n  fix: open ones start at 1, 4" in told
    assert "needs to be confirmed" in run("cluster", "txns", *abort, "1", code=2)
    (would,) = items(run, *abort, "1", "--dry-run")
    assert (would["result"], would["start_offset"]) == ("would be aborted", 1)
    (done,) = items(run, *abort, "1", "-y")
    assert (done["result"], done["producer_id"]) == ("aborted", PRODUCER_ID)
    assert items(run, "list", "--hanging", "-t", topic) == []
    assert run("consume", topic, "-e", "--read-committed").split() == ["before", "after"]
    owned.commit_transaction(TIMEOUT_S)


@pytest.mark.usefixtures("unverified")
def test_a_hanging_transaction_is_aborted_by_its_producer(
    run: Run, either: str, topic: str
) -> None:
    create(run, topic, "-p", "1")
    leave_hanging(either, topic, range(1))
    abort = ["cluster", "txns", "abort", "--partition", f"{topic}:0"]
    abort += ["--producer-id", str(PRODUCER_ID), "--coordinator-epoch", "-1", "-y"]
    assert "belong together" in run(*abort, code=2)
    told = run(*abort, "--producer-epoch", "1", code=1)
    assert f"error[PK37]: {topic} [0]: " in told
    run(*abort, "--producer-epoch", "3")
    (known,) = items(run, "producers", f"{topic}:0")
    assert known["start_offset"] is None


def test_transactions_that_do_not_exist(run: Run, topic: str) -> None:
    create(run, topic, "-p", "1")
    told = run("cluster", "txns", "describe", f"{topic}\x1b[31m-id", code=4)
    assert f"error[PK74]: transactional id {topic}\\x1b[31m-id does not exist" in told
    assert "does not exist" in run("cluster", "txns", "abort", f"{topic}-id", "-y", code=4)
    assert "does not exist" in run("cluster", "txns", "producers", f"{topic}-x", code=4)
    assert "no partition 7" in run("cluster", "txns", "producers", f"{topic}:7", code=4)
    assert items(run, "producers", topic) == []
    told = run("cluster", "txns", "list", "--hanging", "--broker", "9", code=4)
    assert "no broker 9 is alive" in told
    place = ["--partition", f"{topic}:0", "--start-offset", "5", "-y"]
    assert "has no open transaction" in run("cluster", "txns", "abort", *place, code=4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "--state", "tired"], "is no state of a transaction"),
        (["list", "--longer-than", "soon"], "--longer-than takes a time"),
        (["list", "--broker", "1"], "need --hanging"),
        (["list", "--hanging", "--state", "Empty"], "--hanging excludes"),
        (["list", "--hanging", "-t", "a:b"], "neither TOPIC nor TOPIC:PARTITION"),
        (["describe", ""], "ID takes"),
        (["producers", "a:b"], "neither TOPIC nor TOPIC:PARTITION"),
        (["abort"], "which transaction?"),
        (["abort", "id", "--partition", "a:0", "--start-offset", "1"], "exclude each other"),
        (["abort", "id", "--start-offset", "1"], "need --partition"),
        (["abort", "--partition", "a:0"], "which transaction of the partition?"),
        (["abort", "--partition", "a", "--start-offset", "1"], "takes TOPIC:PARTITION"),
        (
            ["abort", "id", "-X", "security.protocol=SASL_SSL"],
            "Apache Kafka's kafka-transactions.sh",
        ),
        (
            ["list", "-X", "security.protocl=ssl"],
            'No such configuration property: "security.protocl"',
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_mistakes_are_told(broker: TestBroker, arguments: list[str], said: str) -> None:
    code = 1 if "security.protocol=SASL_SSL" in arguments else 2
    assert said in runner(broker.bootstrap)("cluster", "txns", *arguments, code=code)
