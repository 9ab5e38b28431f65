"""Tables of when a broker may depose a controller; the transaction is one election."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.controller.takeover.evidence import (
    Evidence,
    Found,
    Incumbent,
    LastDeposal,
    Silence,
    operations,
)
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, EmbeddedStore, open_store
from pyrklog.metastore.interface import (
    BadVersionError,
    Create,
    Delete,
    MetastoreError,
    Node,
    NoNodeError,
    SessionExpiredError,
    Set,
    Stat,
)
from pyrklog.start.identity import create_paths

TIMEOUT_MS = 6_000
NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("refusals", "others", "expected"),
    [
        (0, 0, False),
        (1, 0, False),
        (2, 0, True),
        (1, 1, True),
        # Without a refusal of its own a broker believes nobody.
        (0, 2, False),
    ],
)
def test_deposal_needs_two_refusals_in_all(refusals: int, others: int, expected: bool) -> None:
    evidence = Evidence(refusals, others, NOW_MS, None)
    assert evidence.is_suspected is expected
    assert evidence.wait_ms(TIMEOUT_MS) == (0 if expected else None)


@pytest.mark.parametrize(
    ("others", "registered", "expected"),
    [
        (0, 1, False),
        (0, 2, False),
        (0, 3, False),
        (1, 3, True),
        (1, 4, False),
        (2, 4, True),
        (1, 5, False),
        (2, 5, True),
    ],
)
def test_deposal_for_silence_needs_a_majority(others: int, registered: int, expected: bool) -> None:
    evidence = Evidence(0, 0, NOW_MS, None, Silence(others, registered))
    assert evidence.is_suspected is expected
    # Its own refusal counts as a sign, but is not enough alone.
    refused = Evidence(1, 0, NOW_MS, None, Silence(others, registered))
    assert refused.is_suspected is expected


@pytest.mark.parametrize(
    ("ago_ms", "unproven", "is_proven", "expected_ms"),
    [
        # The controller deposed last was really dead.
        (100, 1, True, 0),
        (100, 5, True, 0),
        # It still lives, or that is not known yet.
        (0, 1, False, 6_000),
        (5_999, 1, False, 1),
        (6_000, 1, False, 0),
        (6_000, 2, False, 6_000),
        (0, 3, False, 24_000),
        (0, 7, False, 384_000),
        (0, 40, False, 384_000),
        (-5_000, 1, False, 6_000),
    ],
)
def test_unproven_deposals_delay_the_next(
    ago_ms: int, unproven: int, is_proven: bool, expected_ms: int
) -> None:
    last = LastDeposal(NOW_MS - ago_ms, unproven, is_proven)
    assert Evidence(2, 0, NOW_MS, last).wait_ms(TIMEOUT_MS) == expected_ms
    assert Evidence(1, 0, NOW_MS, last).wait_ms(TIMEOUT_MS) is None


def test_unproven_deposals_are_counted_until_one_is_proven() -> None:
    def following(last: LastDeposal | None) -> int:
        return Evidence(2, 0, NOW_MS, last).unproven

    assert following(None) == 1
    assert following(LastDeposal(0, 1, is_proven=False)) == 2
    assert following(LastDeposal(0, 8, is_proven=False)) == 9
    assert following(LastDeposal(0, 8, is_proven=True)) == 1


def test_proof_names_one_term_of_a_controller() -> None:
    """/controller has version 0 in each term, so its version does not help."""
    stat = Stat(0, 7, 7, 100, 0, 0)
    incumbent = Incumbent(1, stat)
    assert incumbent.is_still(Node(b"", stat))
    assert not incumbent.is_still(None)
    assert not incumbent.is_still(Node(b"", stat._replace(czxid=8)))
    assert not incumbent.is_still(Node(b"", stat._replace(ephemeral_owner=101)))


# --- the transaction ------------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await open_store(tmp_path / "meta")
    await create_paths(opened.session(), (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    yield opened
    await opened.close()


class Scene:
    """Broker 1, controller in epoch 4, refuses broker 2, which has read that state."""

    def __init__(self, first: EmbeddedSession, second: EmbeddedSession) -> None:
        self.first = first
        self.second = second

    async def begin(self) -> None:
        data = znodes.encode_controller(1, 0)
        await self.first.multi(
            [Create(znodes.CONTROLLER, data, True), Create(znodes.CONTROLLER_EPOCH, b"4")]
        )
        await self.second.create(znodes.refused_path(2), b"", ephemeral=True)
        self.epoch = await self.first.get(znodes.CONTROLLER_EPOCH)
        self.incumbent = Incumbent(1, (await self.first.get(znodes.CONTROLLER)).stat)

    async def elect_again(self) -> None:
        """Broker 1 loses its place and regains it: another term, the same versions."""
        data = znodes.encode_controller(1, 0)
        await self.first.multi(
            [
                Delete(znodes.CONTROLLER),
                Create(znodes.CONTROLLER, data, True),
                Set(znodes.CONTROLLER_EPOCH, b"5"),
            ]
        )

    async def depose(self) -> Stat:
        found = Found(self.epoch, 99, None)
        results = await self.second.multi(operations(2, self.incumbent, found, 1, 77))
        stat = results[2]
        assert isinstance(stat, Stat)
        return stat

    async def content(self) -> list[tuple[bytes, int] | None]:
        paths = [znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, znodes.DEPOSED, znodes.refused_path(2)]
        return [
            None if node is None else (node.data, node.stat.ephemeral_owner)
            for node in await self.first.get_many(paths)
        ]


@pytest.fixture
async def scene(store: EmbeddedStore) -> Scene:
    made = Scene(store.session(), store.session())
    await made.begin()
    return made


async def test_one_transaction_replaces_the_controller(scene: Scene) -> None:
    stat = await scene.depose()
    controller, epoch, deposed, mark = await scene.content()
    assert controller == (znodes.encode_controller(2, 77), scene.second.session_id)
    assert epoch == (b"5", 0)
    assert stat.version == scene.epoch.stat.version + 1
    assert deposed is not None
    assert znodes.decode_deposed(deposed[0]) == znodes.Deposed(1, 99, 2, 1)
    assert mark is None
    again = await scene.first.get(znodes.DEPOSED)
    found = Found(await scene.first.get(znodes.CONTROLLER_EPOCH), 98, again.stat.version)
    incumbent = Incumbent(2, (await scene.first.get(znodes.CONTROLLER)).stat)
    await scene.first.create(znodes.refused_path(1), b"", ephemeral=True)
    await scene.first.multi(operations(1, incumbent, found, 2, 78))
    record = (await scene.first.get(znodes.DEPOSED)).data
    assert znodes.decode_deposed(record) == znodes.Deposed(2, 98, 1, 2)


async def test_a_later_term_of_the_same_broker_is_not_replaced(scene: Scene) -> None:
    await scene.elect_again()
    before = await scene.content()
    with pytest.raises(BadVersionError, match=znodes.CONTROLLER_EPOCH):
        await scene.depose()
    assert await scene.content() == before


async def test_deposing_without_a_controller_writes_nothing(scene: Scene) -> None:
    """That is the ordinary election's task."""
    await scene.first.delete(znodes.CONTROLLER)
    before = await scene.content()
    with pytest.raises(NoNodeError):
        await scene.depose()
    assert await scene.content() == before


async def test_broker_without_a_session_cannot_depose(scene: Scene) -> None:
    await scene.second.expire()
    before = await scene.content()
    with pytest.raises(SessionExpiredError):
        await scene.depose()
    assert await scene.content() == before


async def test_one_of_two_concurrent_deposals_succeeds(scene: Scene, store: EmbeddedStore) -> None:
    third = store.session()
    await third.create(znodes.refused_path(3), b"", ephemeral=True)
    await scene.depose()
    before = await scene.content()
    found = Found(scene.epoch, 99, None)
    with pytest.raises(MetastoreError):
        await third.multi(operations(3, scene.incumbent, found, 1, 79))
    assert await scene.content() == before
