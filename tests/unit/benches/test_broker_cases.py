"""Cases of transactions, compaction and coordinators: figures, frames, files."""

import argparse
from pathlib import Path

import pytest
from rich.console import Console

from benches import (
    against_kafka,
    cases,
    compaction_case,
    coordinator_case,
    effort,
    goals,
    old_client_cases,
    transaction_cases,
)
from benches.effort import Case, Scenario
from benches.group_members import Member
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


def options(line: str) -> argparse.Namespace:
    return against_kafka.parse(line.split())


def test_isolation_levels_are_compared_with_their_neighbours() -> None:
    found = transaction_cases.isolation_figures([100, 200, 400], [90, 220, 400])
    assert found["of_uncommitted"] == pytest.approx(1.0)
    assert (found["mb_per_s"], found["uncommitted_mb_per_s"]) == (220, 200)


def test_what_kafka_cannot_do_is_not_asked_of_it() -> None:
    bench = against_kafka.Bench(options("--only transactions-10-v2"), Console(quiet=True))
    assert [case.name for case in bench.shared("pyrklog")] == ["transactions-10-v2"]
    assert bench.shared("kafka") == []


def test_sizes_are_options() -> None:
    found = against_kafka._effort(options("--quick --commits 500 --compaction-gb 0.2"))
    assert (found.commits, found.compaction_bytes) == (500, 200_000_000)


def test_every_figure_shown_and_every_goal_exists() -> None:
    names = {case.name: case for case in cases.ALL}
    added: tuple[Case | Scenario, ...] = (
        *transaction_cases.CASES,
        *old_client_cases.CASES,
        *compaction_case.SCENARIOS,
        coordinator_case.SCENARIO,
    )
    for case in added:
        assert set(case.shown) <= set(effort.METRICS), case.name
        assert names[case.name] is case
    for goal in goals.GOALS:
        if goal.case in names and goal.case.startswith(("transact", "compaction", "old-client")):
            assert goal.metric in cases.SHOWN[goal.case], goal


# --- compaction ----------------------------------------------------------------------------------


def test_the_cleaned_offset_is_that_of_the_topics_row(tmp_path: Path) -> None:
    assert compaction_case.cleaned_to(tmp_path, "t") == 0
    rows = ["0", "3", "other 0 7", "t 1 8", "t 0 900"]
    (tmp_path / "cleaner-offset-checkpoint").write_text("\n".join(rows) + "\n")
    assert compaction_case.cleaned_to(tmp_path, "t") == 900
    assert compaction_case.cleaned_to(tmp_path, "absent") == 0


def test_the_last_segment_is_not_compacted(tmp_path: Path) -> None:
    for start, size in ((0, 5), (100, 7), (250, 11)):
        (tmp_path / f"{start:020}.log").write_bytes(bytes(size))
    (tmp_path / f"{0:020}.index").write_bytes(b"no segment")
    assert compaction_case.closed_segments(tmp_path) == (12, 250)


# --- coordinator ---------------------------------------------------------------------------------


def committed() -> coordinator_case.Committed:
    member = Member.__new__(Member)  # without a connection
    member.group, member.member_id, member.generation = "g", "m", 3
    return coordinator_case.Committed(member, 0, 0)


def test_a_commit_names_its_offset_in_every_partition() -> None:
    body = committed().commit_frame(77)
    header = 4 + 2 + 2 + 4 + 2 + len("group-load") + 1
    request = OFFSET_COMMIT.decode_request(body[header:], coordinator_case.COMMIT_VERSION)
    assert (request.group_id, request.generation_id_or_member_epoch) == ("g", 3)
    [topic] = request.topics
    assert [one.committed_offset for one in topic.partitions] == [77] * coordinator_case.PARTITIONS


def test_the_answer_to_a_commit_gives_its_error() -> None:
    for code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        places = [OffsetCommitResponsePartition(index, code) for index in range(100)]
        topics = [OffsetCommitResponseTopic(coordinator_case.TOPIC, places)]
        answer = OffsetCommitResponse(topics=topics)
        body = OFFSET_COMMIT.encode_response(answer, coordinator_case.COMMIT_VERSION)
        assert coordinator_case.commit_error(body) == code


def test_fetched_offsets_that_differ_are_all_told() -> None:
    places = [OffsetFetchResponsePartition(index, index % 2) for index in range(4)]
    topics = [OffsetFetchResponseTopic(coordinator_case.TOPIC, places)]
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)])
    body = OFFSET_FETCH.encode_response(answer, coordinator_case.FETCH_VERSION)
    assert coordinator_case.fetched(body) == (ErrorCode.NONE, {0, 1})
    loading = OffsetFetchResponseGroup("g", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    body = OFFSET_FETCH.encode_response(
        OffsetFetchResponse(groups=[loading]), coordinator_case.FETCH_VERSION
    )
    assert coordinator_case.fetched(body)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
