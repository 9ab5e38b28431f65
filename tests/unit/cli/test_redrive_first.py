"""Whether a group without progress may have redriven records before."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyrklog.cli import redrive_first
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings
from pyrklog.cli.redrive_first import check_first

SPANS = {("dlq", 0): (5, 9), ("dlq", 1): (0, 0)}


class Cluster:
    """``younger``: the first offset of partition 0 that is younger than is asked."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, younger: int, retention: str | None = None
    ) -> None:
        self.settings = Settings()
        self.committed: dict[tuple[str, int], tuple[int, str]] = {}
        self.admin = self
        self._retention = retention
        self._younger = younger
        self.ages_min: list[int] = []
        monkeypatch.setattr(redrive_first, "committed_offsets", lambda *_: self.committed)
        monkeypatch.setattr(redrive_first, "query_offsets", self._offsets)

    def _offsets(
        self, _connection: object, keys: Sequence[tuple[str, int]], spec: Any
    ) -> dict[tuple[str, int], int]:
        assert keys == [("dlq", 0)]
        self.ages_min.append(round((time.time() - spec._value / 1000) / 60))
        return {("dlq", 0): self._younger}

    def metadata(self) -> Any:
        return SimpleNamespace(brokers={3: None, 2: None})

    def describe_configs(self, resources: list[Any], **_more: Any) -> dict[Any, Any]:
        (resource,) = resources
        assert resource.name == "2"
        future: Future[Any] = Future()
        if self._retention is None:
            future.set_exception(
                KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
            )
        else:
            entry = SimpleNamespace(value=self._retention)
            future.set_result({"offsets.retention.minutes": entry})
        return {resource: future}


def check(cluster: Any, *, is_told_only: bool = False, spans: Any = None) -> None:
    check_first(
        cluster, "redrive.dlq", SPANS if spans is None else spans, is_told_only=is_told_only
    )


@pytest.mark.parametrize(
    ("retention", "minutes", "age"),
    [(None, 10_080, "7d"), ("10080", 10_080, "7d"), ("120", 120, "2h"), ("90", 90, "90m")],
)
@pytest.mark.parametrize("younger", [-1, 7])
def test_records_that_may_have_been_redriven_are_refused(
    monkeypatch: pytest.MonkeyPatch, retention: str | None, minutes: int, age: str, younger: int
) -> None:
    cluster = Cluster(monkeypatch, younger, retention)
    with pytest.raises(CliError) as caught:
        check(cluster)
    assert caught.value.code is Exit.FAILED
    assert f"redrive.dlq has no progress, and dlq has records older than {age};" in str(
        caught.value
    )
    assert caught.value.fix == (
        "--again redrives all of them, also the first time; `pyrklog group seek redrive.dlq "
        f"--topic dlq --to @-{age}` before leaves the older ones out"
    )
    assert cluster.ages_min == [minutes]


def test_a_dry_run_only_tells_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(Cluster(monkeypatch, -1), is_told_only=True)
    told = capsys.readouterr().err
    assert told.startswith("note: group redrive.dlq has no progress, and dlq has records older")
    assert "without --dry-run: --again redrives all of them" in told


@pytest.mark.parametrize("retention", ["10080", str(2**31 - 1)])
def test_young_records_cannot_have_been_redriven(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], retention: str
) -> None:
    is_ever = retention != "10080"
    check(Cluster(monkeypatch, -1 if is_ever else 5, retention))
    told = "note: group redrive.dlq has no progress yet: it begins at the first record\n"
    assert capsys.readouterr().err == told


def test_nothing_is_said_with_progress_or_without_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(monkeypatch, -1)
    check(cluster, spans={("dlq", 0): (9, 9)})
    cluster.committed = {("dlq", 1): (0, "")}
    check(cluster)
    assert (capsys.readouterr().err, cluster.ages_min) == ("", [])
