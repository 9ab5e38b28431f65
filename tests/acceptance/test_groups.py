"""Rows 5, 6, 26, 27: groups form, share, and wait for nobody for ever.

Row 5 (franz-go's) is driven by librdkafka and Java: the Go clients are not installed.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable

import pytest

from tests.acceptance.sites import Site
from tests.support.groups import MEMBERS, ConfluentMember, Crew, Member, fill
from tests.support.java_client import JavaConsumer, JavaMachine
from tests.support.verifiable import verifiable

pytestmark = pytest.mark.jvm

PARTITIONS = 6
EACH = 20
EVERY_VALUE = sorted(f"{p}:{n}" for p, n in itertools.product(range(PARTITIONS), range(EACH)))
JAVA = "java"

MakeMember = Callable[..., Member]


@pytest.fixture
def filled(site: Site, topic: str) -> str:
    """A topic of six partitions with twenty records each."""
    site.create(topic, PARTITIONS)
    fill(site.bootstrap, topic, PARTITIONS, EACH)
    return topic


@pytest.fixture
def make_java(site: Site, java: JavaMachine, filled: str) -> MakeMember:
    return lambda **options: JavaConsumer(java, site.bootstrap, filled, group=filled, **options)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_row_05_a_second_member_takes_its_share_and_gives_it_back(
    site: Site, filled: str, strategy: str
) -> None:
    def join() -> ConfluentMember:
        options = {"partition_assignment_strategy": strategy}
        return ConfluentMember(site.bootstrap, filled, filled, **options)

    share_in_turn(join)


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_row_05_a_second_java_member_takes_its_share_and_gives_it_back(
    make_java: MakeMember, assignor: str
) -> None:
    strategy = f"org.apache.kafka.clients.consumer.{assignor}"
    share_in_turn(lambda: make_java(partition_assignment_strategy=strategy))


def share_in_turn(join: Callable[[], Member]) -> None:
    with Crew(join()) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone")
        crew.members.append(join())
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
        assert [len(member.assigned()) for member in crew.members] == [3, 3]
        crew.members.pop().close()
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone again")


@pytest.mark.parametrize("client", [*MEMBERS, JAVA])
def test_row_06_a_group_forms_commits_and_goes_on(
    site: Site, filled: str, make_java: MakeMember, client: str
) -> None:
    def make() -> Member:
        return make_java() if client == JAVA else MEMBERS[client](site.bootstrap, filled, filled)

    with Crew(make()) as crew:
        crew.poll_until(lambda: len(crew.seen) >= len(EVERY_VALUE), "everything read")
        assert sorted(crew.seen) == EVERY_VALUE
        (member,) = crew.members
        assert member.committed(0) is None
        member.commit(dict.fromkeys(range(PARTITIONS), EACH), "first round")
        assert member.committed(0) == (EACH, "first round")
        member.commit({3: 15}, "")
    fill(site.bootstrap, filled, 1, 1)
    with Crew(make()) as crew:
        crew.poll_until(lambda: len(crew.seen) >= 6, "only what was not committed")
        assert sorted(crew.seen) == ["0:0", *(f"3:{number}" for number in range(15, EACH))]


@pytest.mark.parametrize("client", [*MEMBERS, JAVA])
def test_notes_of_commits_are_kept(
    site: Site, filled: str, make_java: MakeMember, client: str
) -> None:
    """From peers' sweeps: a commit's metadata was lost. The default maximum is 4,096."""
    notes = ["", "a note", "Größe: ✓", "x" * 4_000]
    make = MEMBERS.get(client)
    member = make(site.bootstrap, filled, filled) if make else make_java()
    with Crew(member) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone")
        for partition, note in enumerate(notes):
            member.commit({partition: 7}, note)
        assert [member.committed(p) for p in range(4)] == [(7, note) for note in notes]
        assert member.committed(5) is None


# --- members that end without a word, or come back ------------------------------------------------


def test_row_26_a_vanished_member_never_hangs_preparing(
    site: Site, filled: str, make_java: MakeMember
) -> None:
    """It is killed, so that it cannot leave, and a member that joins then begins a rebalance that
    waits for it: until its session ends."""
    where = ["--bootstrap-server", site.bootstrap, "--topic", filled, "--group-id", filled]
    with Crew(make_java()) as crew:
        with verifiable("VerifiableConsumer", *where, "--session-timeout", "6000") as vanishing:
            crew.poll_until(lambda: len(crew.members[0].assigned()) == 3, "two share")
            vanishing.wait("partitions_assigned")
            vanishing.signal(signal.SIGKILL)
        crew.members.append(make_java())
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the two that are left")


def test_row_26_a_vanished_librdkafka_member_never_hangs_preparing(
    site: Site, filled: str, make_java: MakeMember
) -> None:
    """The first member leaves, while another one that is gone is still awaited."""
    where = ["--bootstrap-server", site.bootstrap, "--topic", filled, "--group-id", filled]
    member = ConfluentMember(site.bootstrap, filled, filled, partition_assignment_strategy="range")
    with Crew(member) as crew:
        with verifiable("VerifiableConsumer", *where, "--session-timeout", "6000") as vanishing:
            crew.poll_until(lambda: len(member.assigned()) == 3, "two share")
            crew.members.append(make_java())
            crew.poll_until(
                lambda: [len(one.assigned()) for one in crew.members] == [2, 2], "three share"
            )
            vanishing.signal(signal.SIGKILL)
        crew.members.remove(member)
        member.close()
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the one that is left")


@pytest.mark.parametrize("client", ["confluent", JAVA])
def test_row_27_a_static_member_restarts_without_a_rebalance(
    site: Site, filled: str, make_java: MakeMember, client: str
) -> None:
    """KIP-345: its instance id brings back its old partitions; nobody else notices."""

    def join(instance: str) -> JavaConsumer | ConfluentMember:
        if client == JAVA:
            made = make_java(group_instance_id=instance)
            assert isinstance(made, JavaConsumer)
            return made
        return ConfluentMember(site.bootstrap, filled, filled, group_instance_id=instance)

    first, second = join("a"), join("b")
    with Crew(first, second) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
        told, share = list(first.events), second.assigned()
        crew.members.remove(second)
        second.close()
        crew.members.append(join("b"))
        crew.poll_until(lambda: crew.members[1].assigned() == share, "its old share")
        for _ in range(10):
            crew.seen += first.poll()
        assert first.events == told
