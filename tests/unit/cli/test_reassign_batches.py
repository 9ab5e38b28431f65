"""Batches of a plan, while others cancel, change or delete what is to come."""

from collections.abc import Callable
from typing import Any

import pytest
import typer

from pyrklog.balance.model import PartitionKey, Replicas
from pyrklog.balance.prediction import Batch, Prediction
from pyrklog.balance.record import begun
from pyrklog.cli import reassign_past, reassign_rate, reassign_run
from pyrklog.cli.failures import Exit
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_cancel import cancel_moves
from pyrklog.cli.reassign_run import Run
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

A, B, C = ("t", 0), ("t", 1), ("u", 0)
PLACED: dict[PartitionKey, Replicas] = {A: (1, 2), B: (2, 1), C: (1,)}
AFTER: dict[PartitionKey, Replicas] = {A: (1, 3), B: (2, 3), C: (3,)}
OPTIONS = Settings("127.0.0.1:1")


class Shared(FakeAdmin):
    """``meanwhile`` is done once, at the first look after something was begun."""

    def __init__(self) -> None:
        super().__init__(PLACED)
        self.meanwhile: Callable[[], None] | None = None

    def moving(self) -> Any:
        if self.targets and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        self.end()
        return super().moving()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WATCH_INTERVAL_S", "SETTLED_S", "SETTLED_PAUSE_S"):
        monkeypatch.setattr(reassign_run, name, 0.0)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Shared:
    found = Shared()
    throttles = FakeThrottles(found)
    for module in (reassign_run, reassign_rate, reassign_past):
        monkeypatch.setattr(module, "Throttles", lambda *_: throttles)
    return found


def carry_out(admin: FakeAdmin) -> list[Exit]:
    batches = [Batch((key,), 0, 1.0) for key in AFTER]
    record = begun("id", 0, PLACED, AFTER, Prediction(1, batches), {}, None)
    return Run(NO_CONNECTION, admin, OPTIONS, record, None).carry_out(None, watch=True)


def test_each_batch_waits_for_the_one_before(admin: Shared) -> None:
    assert set(carry_out(admin)) == {Exit.OK}
    assert admin.altered == [{A: AFTER[A]}, {B: AFTER[B]}, {C: AFTER[C]}]


def test_a_batch_that_was_cancelled_ends_the_plan(
    admin: Shared, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.meanwhile = admin.targets.clear
    assert Exit.DIFFERS in carry_out(admin)
    assert admin.altered == [{A: AFTER[A]}]
    assert "t-0 is 1,2, not 1,3" in capsys.readouterr().err


def test_what_others_have_changed_meanwhile_stays(
    admin: Shared, capsys: pytest.CaptureFixture[str]
) -> None:
    def raised() -> None:
        admin.placed[B] = (2, 1, 4)

    admin.meanwhile = raised
    carry_out(admin)
    assert admin.altered == [{A: AFTER[A]}, {C: AFTER[C]}]
    assert admin.placed[B] == (2, 1, 4)
    assert "t-1 stays: it is 2,1,4" in capsys.readouterr().err


def test_a_topic_that_is_deleted_meanwhile_stops_nothing(admin: Shared) -> None:
    def deleted() -> None:
        del admin.placed[A]
        admin.targets.clear()

    admin.meanwhile = deleted
    carry_out(admin)
    assert admin.placed[C] == AFTER[C]


def test_cancel_of_a_plan_leaves_what_another_plan_moves(
    admin: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyrklog.cli import reassign_cancel

    stays = FakeAdmin(PLACED)
    stays.targets = {A: AFTER[A], B: (2, 4)}
    throttles = FakeThrottles(stays)
    monkeypatch.setattr(reassign_cancel, "connect", lambda _: NO_CONNECTION)
    monkeypatch.setattr(reassign_cancel, "ReassignmentAdmin", lambda _: stays)
    monkeypatch.setattr(reassign_cancel, "Throttles", lambda *_: throttles)
    with pytest.raises(typer.Exit):
        cancel_moves(OPTIONS, AFTER, None, dry_run=False)
    assert stays.targets == {B: (2, 4)}
    assert "t-1 stays: it moves to 2,4, by another plan" in capsys.readouterr().err
