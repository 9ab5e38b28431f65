"""Plans whose new replicas start at their leaders' ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from pyrklog.balance.prediction import Batch, Prediction
from pyrklog.balance.record import begun
from pyrklog.cli import reassign_rate, reassign_record, reassign_run
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_run import Run
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

A, B = ("t", 0), ("t", 1)
PLACED = {A: (1, 2), B: (2, 1)}


def test_what_starts_at_the_end_has_no_throttle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = FakeAdmin(PLACED)
    throttles = FakeThrottles(admin)
    for module in (reassign_run, reassign_rate):
        monkeypatch.setattr(module, "Throttles", lambda *_: throttles)
    path = tmp_path / "plan.progress.json"
    wanted = {A: (1, 3), B: (2, 3)}
    known = begun("id", 0, PLACED, wanted, Prediction(1, [Batch((A, B), 0, 1.0)]), {}, "1MB")
    record = replace(known, at_end=frozenset({A}))
    options = Settings("127.0.0.1:1")
    Run(NO_CONNECTION, admin, options, record, path).carry_out("1MB", watch=False)
    assert admin.at_end == {A}
    assert {name.split(":")[0] for name in throttles.named()["t"].followers} == {"1"}
    kept = reassign_record.load(path)
    assert kept is not None
    assert kept.at_end == {A}
