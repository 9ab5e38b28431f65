"""Rows 2, 9, 18, 19, 20, 21, 23, 37: transactions as their clients see them."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition

from pyrklog.errors import ErrorCode
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.offsets import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestTopic
from pyrklog.testing.broker import free_port
from tests.acceptance.sites import ONE, MakeSite, Site
from tests.support import kafka_tools
from tests.support.groups import Crew
from tests.support.java_client import JavaConsumer, JavaMachine, JavaProducer, JavaThrew
from tests.support.raw_client import RawClient
from tests.support.transactions import producer_of, wait_until_ended
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.watching_proxy import LosesAnswers, WatchingProxy

pytestmark = pytest.mark.jvm

END_TXN = 26
COMMITTED = "READ_COMMITTED"


class Writer(JavaProducer):
    """Transactional, initialized."""

    def __init__(self, java: JavaMachine, bootstrap: str, name: str, **options: object) -> None:
        super().__init__(java, bootstrap, transactional_id=name, **options)
        self.call("initTransactions")

    def begin(self, topic: str, *values: str) -> list[int]:
        """Begins a transaction, writes to it and returns the offsets."""
        self.call("beginTransaction")
        return self.send(topic, values)

    def commit(self) -> None:
        self.call("commitTransaction")

    def abort(self) -> None:
        self.call("abortTransaction")


def reader(java: JavaMachine, site: Site, topic: str, **options: object) -> JavaConsumer:
    """Of committed records."""
    isolated = {"isolation_level": "read_committed", **options}
    return JavaConsumer(java, site.bootstrap, topic, group=None, **isolated)


def ends_at(java: JavaMachine, site: Site, topic: str, end: int) -> None:
    """Markers follow the answer of EndTxn: waits until the last stable offset is this one."""
    told: list[int] = []

    def is_there() -> bool:
        told.append(java.list_offset(site.bootstrap, topic, "latest", isolation=COMMITTED)[0])
        return told[-1] == end

    wait_until(is_there, lambda: f"the last stable offset is {told[-1]}, not {end}")


def read_to(consumer: JavaConsumer, end: int) -> list[tuple[int, str | None]]:
    """Offsets and values up to the position ``end``, which is reached exactly."""
    found: list[tuple[int, str | None]] = []

    def is_there() -> bool:
        found.extend((record.offset, record.value) for record in consumer.records())
        assert consumer.position() <= end
        return consumer.position() == end

    wait_until(is_there, lambda: f"the position stays at {consumer.position()}, read {found}")
    return found


def test_row_02_read_committed_hides_aborted_records(
    site: Site, java: JavaMachine, topic: str
) -> None:
    """To the offset: of records 0 and 1 that are aborted, 3 that is committed, 5 of an open
    transaction and 6 of none."""
    site.create(topic)
    bootstrap = site.bootstrap
    with Writer(java, bootstrap, topic) as writer, JavaProducer(java, bootstrap) as other:
        assert writer.begin(topic, "aborted", "aborted too") == [0, 1]
        writer.abort()
        ends_at(java, site, topic, 3)
        assert writer.begin(topic, "committed") == [3]
        writer.commit()
        ends_at(java, site, topic, 5)
        assert writer.begin(topic, "open") == [5]
        assert other.send(topic, ["plain"]) == [6]
        assert java.list_offset(bootstrap, topic, "latest")[0] == 7
        ends_at(java, site, topic, 5)
        with reader(java, site, topic) as consumer:
            assert consumer.seek_to("End") == 5
            for start in (0, 1, 2, 3):
                consumer.seek(start)
                assert read_to(consumer, 5) == [(3, "committed")]
            consumer.seek(4)
            assert read_to(consumer, 5) == []
            with JavaConsumer(java, bootstrap, topic) as careless:
                found = [(one.offset, one.value) for one in careless.read(5)]
            assert [offset for offset, _ in found] == [0, 1, 3, 5, 6]
            writer.commit()
            ends_at(java, site, topic, 8)
            assert read_to(consumer, 8) == [(5, "open"), (6, "plain")]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_row_09_require_stable_ends_with_the_transaction(
    site: Site, topic: str, commits: bool
) -> None:
    """KIP-447: while an offset is pending, those who require stable ones get none."""
    site.create(topic)
    settings = {"bootstrap.servers": site.bootstrap, "group.id": topic, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    place = TopicPartition(topic, 0)
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "no partitions")
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    producer = producer_of(site.bootstrap, topic)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), PATIENCE_S
    )
    assert offset_of(site, topic, is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert offset_of(site, topic, is_stable=False) == (ErrorCode.NONE, 3)
    if commits:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    (found,) = consumer.committed([place], PATIENCE_S)
    assert (found.error, found.offset) == (None, 7 if commits else 3)
    assert offset_of(site, topic, is_stable=True) == (ErrorCode.NONE, found.offset)
    consumer.close()


def offset_of(site: Site, group: str, *, is_stable: bool) -> tuple[int, int]:
    """Error and offset of partition 0 of the topic with the group's name."""
    with RawClient(site.bootstrap.split(",")[0]) as raw:
        found = raw.ask(FIND_COORDINATOR, 2, FindCoordinatorRequest(group))
    request = OffsetFetchRequest(
        group, [OffsetFetchRequestTopic(group, [0])], require_stable=is_stable
    )
    with RawClient(f"{found.host}:{found.port}") as raw:
        answer = raw.ask(OFFSET_FETCH, 7, request)
    assert answer.error_code == 0
    (one,) = answer.topics[0].partitions
    return one.error_code, one.committed_offset


def test_row_18_an_idle_transactional_producer_goes_on_after_its_state_expired(
    own_site: MakeSite, java: JavaMachine, topic: str
) -> None:
    own = own_site(**{"producer.id.expiration.ms": 1})
    own.site.create(topic)
    values = ["first", "second", "third"]
    with Writer(java, own.site.bootstrap, topic) as writer:
        for number, value in enumerate(values):
            assert writer.begin(topic, value) == [2 * number]
            writer.commit()
            ends_at(java, own.site, topic, 2 * number + 2)
            wait_until_ended(own.site.bootstrap, topic)
            own.restart()
            own.site.wait_until_led(topic)
    with reader(java, own.site, topic) as consumer:
        assert [value for _, value in read_to(consumer, 6)] == values


def test_row_19_a_timed_out_transaction_fences_its_producer(
    site: Site, java: JavaMachine, topic: str
) -> None:
    site.create(topic)
    with Writer(java, site.bootstrap, topic, transaction_timeout_ms=5_000) as writer:
        assert writer.begin(topic, "too late") == [0]
        ends_at(java, site, topic, 2)
        with pytest.raises(JavaThrew) as caught:
            writer.commit()
        assert caught.value.kind in ("ProducerFencedException", "InvalidProducerEpochException")
        with pytest.raises(JavaThrew):
            writer.begin(topic, "fenced")
    with Writer(java, site.bootstrap, topic) as heir:
        assert heir.begin(topic, "in time") == [2]
        heir.commit()
    ends_at(java, site, topic, 4)
    with reader(java, site, topic) as consumer:
        assert read_to(consumer, 4) == [(2, "in time")]


@pytest.mark.parametrize("own_site", [ONE], indirect=True)
def test_row_20_a_repeated_end_drops_no_batch(
    own_site: MakeSite, java: JavaMachine, topic: str
) -> None:
    """The answer to EndTxn is lost, and the client asks once more before the next transaction."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    own = own_site(**{"advertised.listeners": f"PLAINTEXT://{address}"})
    watch = LosesAnswers(END_TXN, 1, 2, 4, 5, 6, 9)
    wanted: list[tuple[int, str]] = []
    with WatchingProxy(own.brokers[0].bootstrap, port, watch, early=True):
        site = Site(address, 1)
        site.create(topic)
        end = 0
        with Writer(java, address, topic, retry_backoff_ms=10) as writer:
            for number in range(10):
                commits = number % 3 != 1
                values = [f"{number}.{part}" for part in range(3)]
                offsets = writer.begin(topic, *values)
                if commits:
                    writer.commit()
                    wanted += zip(offsets, values, strict=True)
                else:
                    writer.abort()
                end = offsets[-1] + 2
        ends_at(java, site, topic, end)
        assert end == 40, "three records and a marker each"
        assert watch.seen > 10
        with reader(java, site, topic) as consumer:
            assert read_to(consumer, end) == wanted


def test_row_21_offsets_are_added_during_a_rebalance(
    site: Site, java: JavaMachine, topic: str
) -> None:
    """The generation that prepares to rebalance may still commit."""
    site.create(topic, 2)

    def join() -> JavaConsumer:
        return JavaConsumer(java, site.bootstrap, topic, group=topic)

    def state() -> ConsumerGroupState:
        found = site.admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S)
        return found.state

    with Writer(java, site.bootstrap, topic) as writer, Crew(join()) as crew:
        (first,) = crew.members
        assert isinstance(first, JavaConsumer)
        crew.poll_until(lambda: crew.owns_all(2), "alone")
        second = join()
        crew.members.append(second)

        def prepares() -> bool:
            second.poll()
            return bool(state() == ConsumerGroupState.PREPARING_REBALANCING)

        wait_until(prepares, lambda: f"the group is {state()}")
        assert writer.begin(topic, "output") == [0]
        writer.send_offset(first, topic, 5)
        assert state() == ConsumerGroupState.PREPARING_REBALANCING
        writer.commit()
        crew.poll_until(lambda: crew.owns_all(2), "two share")
        wait_until(lambda: second.committed(0) == (5, ""), "the offset is lost")


def test_row_23_offsets_after_an_abort_and_no_phantom_lag(
    site: Site, java: JavaMachine, topic: str
) -> None:
    """A marker takes an offset, and a consumer that has passed it has no lag."""
    site.create(topic)
    with Writer(java, site.bootstrap, topic) as writer:
        assert writer.begin(topic, "a", "b", "c") == [0, 1, 2]
        writer.abort()
        ends_at(java, site, topic, 4)
        assert writer.begin(topic, "d", "e") == [4, 5]
        writer.commit()
        ends_at(java, site, topic, 7)
        assert writer.begin(topic, "f") == [7]
        writer.abort()
        ends_at(java, site, topic, 9)
    assert java.list_offset(site.bootstrap, topic, "latest")[0] == 9
    member = JavaConsumer(
        java, site.bootstrap, topic, group=topic, isolation_level="read_committed"
    )
    with Crew(member) as crew:
        crew.poll_until(lambda: member.assigned() == [0], "alone")
        crew.poll_until(lambda: member.position() == 9, "the end")
        assert crew.seen == ["d", "e"]
        assert member.lag() == 0
        member.commit({0: member.position()}, "")
        (output,) = kafka_tools.run(
            site.bootstrap, [f"consumer-groups --describe --group {topic} --offsets"]
        )
    (line,) = [line for line in output.lines if line.startswith(f"{topic} {topic} 0 ")]
    assert line.split()[3:6] == ["9", "9", "0"], "offset, end, lag"


SEGMENT_BYTES = 4_000
TRANSACTIONS = 40


def test_row_37_aborted_transactions_over_many_segments(
    own_site: MakeSite, java: JavaMachine, topic: str
) -> None:
    """Wherever a fetch begins, in whichever segment the transaction index names them; one
    transaction lasts over all segments."""
    own = own_site()
    site = own.site
    site.create(topic, segment_bytes=str(SEGMENT_BYTES), index_interval_bytes="100")
    wanted: list[tuple[int, str]] = []
    with (
        Writer(java, site.bootstrap, f"{topic}-long", transaction_timeout_ms=600_000) as long,
        Writer(java, site.bootstrap, topic) as writer,
    ):
        assert long.begin(topic, "of the long one") == [0]
        for number in range(TRANSACTIONS):
            values = [f"{number}.{part} ".ljust(200, "x") for part in range(3)]
            offsets = writer.begin(topic, *values)
            assert offsets[0] == 4 * number + 1
            if number % 3 == 2:
                writer.commit()
                wanted += zip(offsets, values, strict=True)
            else:
                writer.abort()
            wait_until(
                lambda end=4 * number + 5: (  # type: ignore[misc]
                    java.list_offset(site.bootstrap, topic, "latest")[0] == end
                ),
                "there is no marker",
            )
        ends_at(java, site, topic, 0)
        long.abort()
    end = 4 * TRANSACTIONS + 2
    ends_at(java, site, topic, end)
    for _ in range(2):
        with reader(java, site, topic, max_partition_fetch_bytes=1_500) as consumer:
            for start in (0, 1, 2, 4, 50, 52, 53, 58, 90, end - 6, end - 1):
                consumer.seek(start)
                expected = [(offset, value) for offset, value in wanted if offset >= start]
                assert read_to(consumer, end) == expected
        own.restart()
        site.wait_until_led(topic)
