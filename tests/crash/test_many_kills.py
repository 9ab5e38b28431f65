"""Repeated kill -9 under all kinds of load and at all kinds of moments.

Records acknowledged from the block cache are there afterwards, at the acknowledged offset, in
order, and once if the producer is idempotent; so are committed offsets, topics and deletions.
``KILLS`` sets the number (default 25). Every hundred kills all logs are compared record by record,
once by a reader and once in the files, without a broker.
"""

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.plane.offline import drain_arena, list_arenas
from pyrklog.testing import TestBroker
from tests.support.faults.driver import FaultDriver
from tests.support.faults.site import Lone
from tests.support.killing import LibraryWriter, Persistent, RawWriter, Style
from tests.support.ledger import Ledger, Place
from tests.support.log_files import check_files
from tests.support.raw_client import RawClient
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.witnesses import (
    Commits,
    Committer,
    Deleter,
    Member,
    PassingTopics,
    Reader,
)

KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("KILLS_SEED", str(random.randrange(1 << 30))))
KILLS_A_CAMPAIGN = 100
LIFE_MAX_S = 0.6

MIXED, LARGE, RAW, READ = "mixed", "large", "raw", "read"
PARTITIONS = {MIXED: 3, LARGE: 2, RAW: 4, READ: 2}
TOPIC_OPTIONS = {
    # Small segments: kills fall into rolls, and into the writing of indexes and snapshots.
    MIXED: {"segment.bytes": "150000", "index.interval.bytes": "512"},
    LARGE: {"segment.bytes": "8000000", "max.message.bytes": "2000000"},
    RAW: {"segment.bytes": "60000", "index.interval.bytes": "512"},
    READ: {},
}
SMALL = Style(0, 300, 60, 0.02, {"batch.num.messages": 20})
COMPRESSED = Style(100, 3_000, 40, 0.04, {"compression.type": "lz4", "batch.num.messages": 50})
BULKY = Style(1_000, 450_000, 4, 0.15, {"batch.size": 900_000, "message.max.bytes": 1_000_000})
STEADY = Style(0, 500, 30, 0.03, {"compression.type": "zstd"})
EXACT_WRITERS = (1, 2, 3, 4, 10, 11, 12)
WRITERS = (*EXACT_WRITERS, 20, 21)

KINDS = {"under load": 12, "during the start": 5, "just started": 3, "two starts at once": 1}


class Campaign:
    """Fresh topics, writers and readers, which live through a number of kills."""

    def __init__(self, bootstrap: str, number: int) -> None:
        self.bootstrap = bootstrap
        self.ledger = Ledger(exact=EXACT_WRITERS)
        self.names = {stem: f"kills-{stem}-{number}" for stem in PARTITIONS}
        self.places = {
            stem: [(self.names[stem], p) for p in range(count)]
            for stem, count in PARTITIONS.items()
        }
        self._create_topics()
        self.commits = [
            Commits(f"kills-by-hand-{number}", self.names[RAW], PARTITIONS[RAW], self.ledger),
            Commits(f"kills-member-{number}", self.names[READ], PARTITIONS[READ], self.ledger),
        ]
        passing = [f"kills-passing-{number}-{i}" for i in range(4)]
        self.passing = PassingTopics(bootstrap, passing, self.ledger)
        self.deleter = Deleter(bootstrap, self.places[RAW][0], self.ledger)
        self.reader = Reader(bootstrap, self.all_places(), self.ledger)
        self._member = Member(bootstrap, self.commits[1], self.ledger)
        self._writers: list[LibraryWriter | RawWriter] = []
        self._writers += self._library_writers()
        self._writers += self._raw_writers()
        witnesses = {
            "reader": self.reader.step,
            "committer": Committer(bootstrap, self.commits[0]).step,
            "member": self._member.step,
            "passing topics": self.passing.step,
            "deleter": self.deleter.step,
        }
        self._writing = [Persistent("writer", one.step, self.ledger) for one in self._writers]
        self._witnessing = [Persistent(name, step, self.ledger) for name, step in witnesses.items()]

    def all_places(self) -> list[Place]:
        return [place for places in self.places.values() for place in places]

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [
            NewTopic(name, PARTITIONS[stem], 1, config=TOPIC_OPTIONS[stem])
            for stem, name in self.names.items()
        ]
        for future in admin.create_topics(topics).values():
            future.result(PATIENCE_S)

    def _library_writers(self) -> list[LibraryWriter]:
        """Two of them share their partitions."""
        return [
            LibraryWriter(self.bootstrap, number, self.places[stem], style, self.ledger)
            for number, stem, style in (
                (1, MIXED, SMALL),
                (2, MIXED, COMPRESSED),
                (3, LARGE, BULKY),
                (4, READ, STEADY),
            )
        ]

    def _raw_writers(self) -> list[RawWriter]:
        """Idempotent ones with either acks, and one without repetition, which shares a partition
        with others."""
        places = self.places[RAW]
        return [
            RawWriter(
                self.bootstrap, number, place, self.ledger, acks=acks, repeats=repeats, pause_s=0.02
            )
            for number, place, acks, repeats in (
                (10, places[0], 1, True),
                (11, places[1], -1, True),
                (12, places[2], 1, True),
                (20, places[2], 1, False),
                (21, places[3], -1, False),
            )
        ]

    def finish(self) -> None:
        """Waits until everything sent is acknowledged and read; ends all threads."""
        for one in self._writing:
            one.end()
        for writer in self._writers:
            writer.finish()
        self.await_reader()
        for one in self._witnessing:
            one.end()
        self.reader.close()
        self._member.close()

    def abandon(self) -> None:
        for one in (*self._writing, *self._witnessing):
            one.abandon()

    def await_all(self) -> None:
        """Waits until all have progressed: a library may need more than a second."""
        self.await_writers(WRITERS)
        self._await(
            lambda: all(max(commits.acknowledged) >= 0 for commits in self.commits),
            lambda: "a group commits nothing",
        )
        self._committed = self.committed()

    def committed(self) -> list[int]:
        """Sums of both groups' committed offsets."""
        return [sum(commits.acknowledged) for commits in self.commits]

    def await_writers(self, numbers: Sequence[int]) -> None:
        """Returns when each of these writers has another acknowledgement."""
        found = self.ledger.acknowledged
        wanted = {number: found[number] + 10 for number in numbers}

        def waiting() -> list[int]:
            return [number for number, least in wanted.items() if found[number] < least]

        self._await(lambda: not waiting(), lambda: f"writers {waiting()} make no progress")

    def await_reader(self) -> None:
        """Returns when the reader has seen everything acknowledged so far."""
        ends = self.ledger.ends()

        def seen() -> dict[Place, int]:
            return {place: self.ledger.seen_up_to(place) for place in ends}

        self._await(
            lambda: all(at >= ends[place] for place, at in seen().items()),
            lambda: f"read up to {seen()} of {ends}",
        )

    def _await(self, condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        """Waits, and fails at the first contradiction."""

        def looks() -> bool:
            self.check()
            return condition()

        wait_until(looks, otherwise)

    def check(self) -> None:
        assert not self.ledger.errors, "\n".join(self.ledger.errors)

    def compare_commits(self) -> None:
        """Compares both groups' offsets with the acknowledged commits."""
        with RawClient(self.bootstrap) as raw:
            for commits in self.commits:
                wait_until(partial(commits.check, raw), "nobody knows the offsets")
        assert self.committed() > self._committed, "no group has got on"

    def delete_topics(self) -> None:
        """The next campaign has its own."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_topics(list(self.names.values())).values():
            future.result(PATIENCE_S)


class Killer:
    """Starts a broker and kills it, in one of several ways."""

    def __init__(self, make: Callable[..., TestBroker], data: Path, cache: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.unwritten_bytes: list[int] = []
        self._cache = cache
        self._data = data
        self._make = make
        self.broker = make(data, options=self._options())
        self._twin = make(data, options=self._options())
        self._site = Lone(self.broker, self._twin)
        self._faults = FaultDriver(self._site)

    def _options(self) -> dict[str, str | int | bool]:
        """Each life has its own cache delay, cache size and checkpoint interval."""
        return {
            "pyrklog.cache.dir": str(self._cache),
            "pyrklog.cache.max.bytes": random.choice((4, 24, 96)) << 20,
            "pyrklog.cache.flush.ms": random.choice((5, 500, 500, 5_000)),
            "pyrklog.cache.flush.bytes": random.choice((1_000, 262_144, 4_000_000)),
            "log.flush.offset.checkpoint.interval.ms": random.choice((100, 60_000)),
            "replica.high.watermark.checkpoint.interval.ms": random.choice((100, 5_000)),
            "offsets.topic.num.partitions": 3,
            # Clients of an earlier campaign keep asking for its topics.
            "auto.create.topics.enable": False,
            "group.initial.rebalance.delay.ms": 0,
        }

    def kill_once(self, campaign: Campaign) -> None:
        """One more kill, or two at once."""
        kind = random.choices(list(KINDS), list(KINDS.values()))[0]
        self.broker.options = self._options()
        match kind:
            case "under load":
                self.broker.start()
                self._await_load(campaign)
                # The kill may come at any moment of a life.
                time.sleep(random.random() * LIFE_MAX_S)
            case "just started":
                self.broker.start()
                # Or while clients come back.
                time.sleep(random.random() * 0.1)
            case "during the start":
                self._faults.kill_in_start(1, random.random() * 0.35)
            case _:
                self._start_both()
        self._site.kill(1)
        self.counts[kind] += 1
        self._look_at_cache()

    def total(self) -> int:
        return self.counts.total()

    def _await_load(self, campaign: Campaign) -> None:
        """Waits for progress of some writers; the others may have been about to connect."""
        campaign.await_writers(random.sample(WRITERS, 3))

    def _start_both(self) -> None:
        """Two brokers want the same directory: at most one gets it, and both are killed."""
        lives_s = [random.random() * 0.6, random.random() * 0.6]
        self._faults.kill_in_starts(list(enumerate(lives_s, 1)))
        assert not (self.broker.running and self._twin.running)
        self._site.kill(2)
        self.counts["two starts at once"] += 1

    def _look_at_cache(self) -> None:
        rows = [row for row in list_arenas(str(self._cache)) if row.unwritten_bytes is not None]
        self.unwritten_bytes.append(sum(row.unwritten_bytes or 0 for row in rows))


@contextmanager
def cache_place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pyrklog-kills-", dir="/dev/shm") as place:
        yield Path(place)


@pytest.mark.timeout(120 + 20 * KILLS)
def test_repeated_kills_lose_no_acknowledged_record(
    new_broker: Callable[..., TestBroker], tmp_path: Path
) -> None:
    random.seed(SEED)
    print(f"\nKILLS={KILLS} KILLS_SEED={SEED}")
    acknowledged = repeated = read = changes = number = 0
    with cache_place() as cache:
        killer = Killer(new_broker, tmp_path / "data", cache)
        while killer.total() < KILLS:
            killer.broker.start()
            number += 1
            campaign = Campaign(killer.broker.bootstrap, number)
            try:
                campaign.await_all()
                killer.broker.kill()
                target = min(killer.total() + KILLS_A_CAMPAIGN, KILLS)
                while killer.total() < target:
                    killer.kill_once(campaign)
                    campaign.check()
                finish(killer, campaign)
            finally:
                campaign.abandon()
            acknowledged += campaign.ledger.acknowledged.total()
            read += campaign.ledger.read
            changes += campaign.passing.changes
            repeated += campaign.ledger.repeated
            print(f"{killer.total()} kills: {acknowledged} acknowledged, {read} read", flush=True)
        left = killer.unwritten_bytes
        held = sum(one > 0 for one in left)
        print(
            f"{dict(killer.counts)}; {acknowledged} records acknowledged, {repeated} of them as "
            f"repetitions without an offset, {read} read; {changes} "
            f"topics created or deleted; {held} of {len(left)} kills that were looked at left "
            f"records in the cache alone, {max(left)} bytes at most"
        )
    assert held > 0, "every record was written before its broker was killed"
    assert acknowledged > KILLS * 50


def finish(killer: Killer, campaign: Campaign) -> None:
    """Compares everything: through a broker, in the files, and through another broker."""
    broker = killer.broker
    broker.start()
    campaign.await_reader()
    broker.kill()
    drain_arena(str(broker.data / "logs"))
    check_files(broker.data / "logs", campaign.all_places(), campaign.ledger)
    campaign.check()
    broker.start()
    campaign.finish()
    campaign.ledger.check_complete()
    campaign.compare_commits()
    campaign.check()
    assert broker.stop() == 0
    check_files(broker.data / "logs", campaign.all_places(), campaign.ledger)
    campaign.check()
    broker.start()
    campaign.delete_topics()
    broker.kill()
