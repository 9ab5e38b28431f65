"""``pyrklog group`` and ``consume -g`` against our broker and against Apache Kafka."""

import csv
import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from tests.support import kafka_tools
from tests.support.groups import ConfluentMember, Crew, create_topic, fill
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import wait_until

PARTITIONS = 3
EACH = 10
Run = Callable[..., str]


@pytest.fixture(scope="module", params=["pyrklog", pytest.param("kafka", marks=pytest.mark.jvm)])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("group-cli")
    if request.param == "kafka":
        with KafkaBroker(folder / "kafka") as kafka:
            yield kafka.bootstrap
        return
    options = {"group.initial.rebalance.delay.ms": 0}
    with TestBroker(folder / "data", options=options) as broker:
        yield broker.bootstrap


def test_a_group_without_a_coordinator_is_told(tmp_path: Path, topic: str) -> None:
    """As in a cluster with fewer brokers than the offsets topic needs replicas."""
    options = {"offsets.topic.replication.factor": 3}
    with TestBroker(tmp_path / "data", options=options) as broker:
        create_topic(broker.bootstrap, topic, 1)
        for command in (["consume", topic, "-g", "g", "-e"], ["group", "describe", "g"]):
            given = ["-b", broker.bootstrap, "--timeout", "3", *command]
            done = CliRunner().invoke(app, given)
            assert done.exit_code == 3, done.stderr
            assert done.stderr.startswith("error[PK36]: group g has no coordinator: there is no ")
            assert "offsets.topic.replication.factor" in done.stderr


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Runs a command, which must end with ``code``; its standard output (or error, if
    it failed)."""

    def call(*arguments: str, code: int = 0) -> str:
        command = ["-b", bootstrap, "--timeout", "20", *arguments]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
        return done.stdout if code == 0 else done.stderr

    return call


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """A topic, and an idle group of its name that has read half of it."""
    create_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap, topic, PARTITIONS, EACH)
    with Crew(ConfluentMember(bootstrap, topic, topic)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the group")
        crew.members[0].commit({0: 5, 1: 10}, "half way")
    return topic


@contextmanager
def busy(bootstrap: str, group: str) -> Iterator[None]:
    """The group has a member, polled in the background."""
    done = threading.Event()
    with Crew(ConfluentMember(bootstrap, group, group, client_id="worker")) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the member")

        def poll() -> None:
            while not done.is_set():
                crew.seen += crew.members[0].poll()

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def offsets(run: Run, group: str) -> dict[tuple[str, int], int]:
    rows = csv.reader(io.StringIO(run("group", "export", group)))
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


@pytest.fixture
def tells_seconds(request: pytest.FixtureRequest) -> bool:
    """Our brokers do."""
    kind: str = request.node.callspec.params["bootstrap"]
    return kind == "pyrklog"


def test_groups_are_listed(run: Run, group: str, tells_seconds: bool) -> None:
    assert group in run("group", "list", "-o", "name").splitlines()
    assert group in run("group", "list", "--state", "empty")
    assert group not in run("group", "list", "--state", "Stable")
    document: dict[str, Any] = {}

    def told() -> dict[str, Any] | None:
        """Seconds are not there before the broker has looked at the log ends."""
        document.update(json.loads(run("group", "list", "--lag", "-o", "json")))
        (found,) = [item for item in document["items"] if item["name"] == group]
        return dict(found) if found["lag_s"] is not None or not tells_seconds else None

    item = wait_until(told, "no seconds are told")
    assert (document["schema"], item["state"]) == ("pyrklog.groups/1", "Empty")
    names = ("type", "members", "lag", "ahead")
    assert [item[name] for name in names] == ["Classic", 0, 5, 0]
    assert (item["lag_s"] is not None) == tells_seconds
    assert group in run("group", "list", "--lag-over", "4,1h")
    assert group not in run("group", "list", "--lag-over", "5,1h")
    assert "--lag-over takes" in run("group", "list", "--lag-over", "many", code=2)
    assert "no state of a group" in run("group", "list", "--state", "tired", code=2)


def test_group_is_described(run: Run, group: str, bootstrap: str, tells_seconds: bool) -> None:
    def described() -> dict[str, Any]:
        (found,) = json.loads(run("group", "describe", group, "-o", "json"))["items"]
        return dict(found)

    def are_told() -> dict[str, Any] | None:
        """Seconds are not there before the broker has looked at the log ends."""
        found = described()
        told = all(part["lag_s"] is not None for part in found["partitions"])
        return found if told or not tells_seconds else None

    item = wait_until(are_told, "no seconds are told")
    parts = [(p["partition"], p["committed"], p["end"], p["lag"]) for p in item["partitions"]]
    assert parts == [(0, 5, 10, 5), (1, 10, 10, 0)]
    assert [part["note"] for part in item["partitions"]] == ["half way", "half way"]
    first, second = item["partitions"]
    if tells_seconds:
        assert first["lag_s"] >= 0
        assert (second["lag_s"], second["lost"], item["lost"]) == (0, 0, 0)
    else:
        assert first["lag_s"] is first["lost"] is item["lag_s"] is None
    with busy(bootstrap, group):
        page = run("group", "describe", group)
    lines = page.splitlines()
    head = f"{group}  Stable  1 member  coordinator 1  lag 5"
    assert lines[0].startswith(f"{head} / " if tells_seconds else head)
    assert (lines[2].split()[5] == "-") == (not tells_seconds)
    assert lines[1].startswith("TOPIC ")
    heading = ["PART", "COMMITTED", "END", "LAG", "LAG_S", "TREND", "MEMBER"]
    assert lines[1].split()[1:] == heading
    assert lines[2].split()[1:5] == ["0", "5", "10", "5"]
    assert lines[2].endswith("worker@127.0.0.1")
    assert lines[4].split()[1:3] == ["2", "-"]
    assert lines[5].split()[:3] == [group, "total", "5"]
    assert "does not exist" in run("group", "describe", f"{group}-x", code=4)


def test_group_offsets_are_moved(run: Run, group: str, tmp_path: Path) -> None:
    first, second, third = ((group, partition) for partition in range(PARTITIONS))
    assert offsets(run, group) == {first: 5, second: 10}
    shown = run("group", "seek", group, "--to", "start", "--dry-run", "-o", "csv")
    assert list(csv.reader(io.StringIO(shown)))[1] == [group, "0", "5", "0", ""]
    assert offsets(run, group) == {first: 5, second: 10}
    for to, selection, expected in [
        ("-2", "", {first: 3, second: 8}),
        ("+100", ":0", {first: 10, second: 8}),
        ("4", ":0,2", {first: 4, second: 8, third: 4}),
        ("@-1d", ":1", {first: 4, second: 0, third: 4}),
        ("@now", ":1", {first: 4, second: 10, third: 4}),
        ("end", "", {first: 10, second: 10, third: 10}),
        ("start", ":2", {first: 10, second: 10, third: 0}),
        ("beginning", ":0", {first: 0, second: 10, third: 0}),
        ("latest", ":0", {first: 10, second: 10, third: 0}),
    ]:
        chosen = ["--topic", f"{group}{selection}"] if selection else []
        run("group", "seek", group, "--to", to, *chosen)
        assert offsets(run, group) == expected, (to, selection)
    copy = tmp_path / "offsets.csv"
    copy.write_text(run("group", "export", group))
    run("group", "seek", group, "--to", "start")
    run("group", "seek", group, "--to", str(copy))
    assert offsets(run, group) == {first: 10, second: 10, third: 0}
    run("group", "seek", f"{group}-2", "--to", f"group:{group}", "--topic", f"{group}:1")
    assert offsets(run, f"{group}-2") == {second: 10}


@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_exported_offsets_are_read(run: Run, group: str, tmp_path: Path, form: str) -> None:
    before = offsets(run, group)
    exported = run("group", "export", group, "-o", form)
    if form == "json":
        document = json.loads(exported)
        assert document["schema"] == "pyrklog.group-offsets/1"
        first = {"topic": group, "partition": 0, "offset": 5, "metadata": "half way"}
        assert document["items"][0] == first
    file = tmp_path / "offsets"
    file.write_text(exported)
    run("group", "seek", group, "--to", "start")
    assert set(offsets(run, group).values()) == {0}
    run("group", "seek", group, "--to", str(file))
    assert offsets(run, group) == before


def test_a_part_of_the_offsets_is_exported(run: Run, group: str) -> None:
    assert run("group", "export", group, "-t", f"{group}:1") == f"{group},1,10\n"
    assert run("group", "export", group, "-t", group) == run("group", "export", group)
    assert "no such offsets" in run("group", "export", group, "-t", f"{group}:2", code=4)
    assert "does not exist" in run("group", "export", f"{group}-x", code=4)


@pytest.mark.jvm
def test_kafkas_tool_reads_exported_offsets(
    run: Run, group: str, bootstrap: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(run("group", "export", group))
    command = f"consumer-groups --group {group} --reset-offsets --from-file {file} --dry-run"
    (told,) = kafka_tools.run(bootstrap, [command])
    assert told.status == 0
    rows = " ".join([*told.lines, ""])
    assert f"{group} {group} 0 5 " in rows
    assert f"{group} {group} 1 10 " in rows
    assert rows.count(f"{group} {group} ") == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"items": 5}',
        '{"items": [{"topic": "t", "partition": 0}]}',
        '{"topic": "t", "partition": 4294967296, "offset": 1}',
        '{"topic": "t", "partition": true, "offset": 1}',
        '{"topic": "t", "partition": 0, "offset": -1}',
        '{"topic": "t", "partition": 0, "offset": 1}\nx',
        "{" * 100_000,
        "t,4294967296,5",
        "t,0,99999999999999999999",
    ],
    ids=range(9),
)
def test_files_of_something_else_are_refused(
    run: Run, group: str, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "offsets"
    file.write_text(text)
    assert str(file) in run("group", "seek", group, "--to", str(file), code=2)


def test_impossible_seeks_are_refused(run: Run, group: str, tmp_path: Path) -> None:
    torn = tmp_path / "torn.csv"
    torn.write_text(f"{group},0\n")
    assert "line 1 is not TOPIC,PARTITION" in run("group", "seek", group, "--to", str(torn), code=2)
    told = run("group", "seek", group, "--to", "nowhere", code=4)
    assert "--to takes start, end, an offset, +N, -N, @TIME, current" in told
    assert "not 'nowhere': there is no such file" in told
    assert "is no time" in run("group", "seek", group, "--to", "@noon", code=2)
    missing = ["--topic", f"{group}:7"]
    beyond = tmp_path / "beyond"
    beyond.write_text(f"{group},0,1\n{group},99,2\n")
    told = run("group", "seek", group, "--to", str(beyond), code=4)
    assert f"topic {group} has no partition 99: it has 3 partitions, 0 to 2" in told
    other = ["--topic", f"{group}-y"]
    run("topic", "create", f"{group}-y")
    told = run("group", "seek", group, "--to", str(beyond), *other, code=4)
    assert f"{beyond} has no offsets of {group}-y\n  fix: it has offsets of {group}\n" in told
    told = run("group", "seek", group, "--to", "end", *missing, code=4)
    assert "no partition 7: it has 3 partitions" in told
    told = run("group", "seek", f"{group}-x", "--to", "end", code=4)
    assert f"group {group}-x does not exist\n  fix: did you mean {group}" in told
    assert "to create it, name topics with --topic" in told
    assert "committed nothing" in run("group", "seek", group, "--to", "group:none", code=4)


def test_where_nothing_is_committed_there_is_nothing_to_start_from(run: Run, group: str) -> None:
    """Of three partitions the last one has no offset: it must not be read from its start."""
    before = offsets(run, group)
    assert (group, 2) not in before
    new = f"{group}-new"
    for to in ("current", "-1", "+1"):
        shown = run("group", "seek", group, "--to", to, "--topic", group, "-o", "csv")
        last = list(csv.reader(io.StringIO(shown)))[-1]
        assert last == [group, "2", "", "", "left out: nothing is committed there"]
        told = run("group", "seek", group, "--to", to, "--topic", f"{group}:2", code=4)
        assert f"group {group} has committed nothing in {group}, so {to} leads nowhere" in told
        run("group", "seek", new, "--to", to, "--topic", group, code=4)
        assert "does not exist" in run("group", "describe", new, code=4)
    assert offsets(run, group) == before


def test_a_group_that_is_created_by_a_seek_is_told(run: Run, group: str, bootstrap: str) -> None:
    new = f"{group}-made"
    seek = ["-b", bootstrap, "group", "seek", new, "--to", "start", "--topic", f"{group}:0"]
    for more, done in ((["--dry-run"], "would be created"), ([], "was created")):
        told = CliRunner().invoke(app, [*seek, *more])
        assert told.exit_code == 0
        assert told.stderr == f"note: group {new} did not exist; it {done}\n"
    assert offsets(run, new) == {(group, 0): 0}


def test_a_living_group_is_moved_by_force_only(run: Run, group: str, bootstrap: str) -> None:
    with busy(bootstrap, group):
        refused = run("group", "seek", group, "--to", "start", code=1)
        assert "is Stable with 1 member" in refused
        assert offsets(run, group)[group, 1] == 10
        refused = run("group", "delete", group, "-y", code=1)
        assert f"error[PK71]: group {group}" in refused
        assert f"fix: stop its members first; {group} has " in refused
        assert "@127.0.0.1" in refused
        refused = run("group", "delete-offsets", group, "-t", group, code=1)
        assert "its members read the topic" in refused
        run("group", "seek", group, "--to", "start", "--force")
        assert set(offsets(run, group).values()) == {0}
        # The member learns of it by its next heartbeat, and joins again.
        while group not in run("group", "list", "--state", "Stable", "-o", "name").splitlines():
            assert set(offsets(run, group).values()) == {0}


def test_group_is_deleted(run: Run, group: str) -> None:
    assert "1 offsets" not in run("group", "delete", group, "--dry-run")
    assert "need" in run("group", "delete", group, code=2)
    told = run("group", "delete-offsets", group, "-t", f"{group}:1", "--dry-run")
    assert told == f"{group} [1]: would be deleted\n"
    told = run("group", "delete-offsets", group, "-t", f"{group}:1")
    assert told == f"{group} [1]: deleted\n"
    assert offsets(run, group) == {(group, 0): 5}
    assert "no such offsets" in run("group", "delete-offsets", group, "-t", f"{group}:1", code=4)
    assert run("group", "delete", group, "-y") == f"{group}: deleted\n"
    assert "does not exist" in run("group", "delete", group, "-y", code=4)


def test_group_is_watched(bootstrap: str, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round shows the change of lag."""
    from pyrklog.cli import group as command

    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt
        fill(bootstrap, group, 1, 3)

    monkeypatch.setattr(command, "_pause", pause)
    done = CliRunner().invoke(app, ["-b", bootstrap, "group", "describe", group, "-w"])
    assert done.exit_code == 130
    assert pauses == [command.WATCH_INTERVAL_S] * 2
    rounds = [text.splitlines() for text in done.stdout.split("\n\n")]
    trends: list[Any] = [[line.split()[6] for line in lines[2:4]] for lines in rounds]
    assert trends == [["-", "-"], ["up", "flat"]]


# --- history -------------------------------------------------------------------------------------


def test_history_shows_generations_and_why_they_began(
    bootstrap: str, run: Run, group: str, request: pytest.FixtureRequest
) -> None:
    """The group's member has left. Apache Kafka does not record why."""
    items = json.loads(run("group", "history", group, "-o", "json"))["items"]
    assert [(one["generation"], one["members"]) for one in items] == [(1, 1), (2, 0)]
    is_ours = "kafka" not in request.node.callspec.id
    for item, word in zip(items, ("new member", "left"), strict=True):
        assert (word in item["reason"]) if is_ours else (item["reason"] is None)
    with busy(bootstrap, group):
        last = run("group", "history", group, "-n", "1").split("\n")
        assert last[0].split() == ["TIME", "GENERATION", "MEMBERS", "PROTOCOL", "REASON"]
        assert last[1].split()[1:4] == ["3", "1", "range"]
    run("group", "delete", group, "-y")
    ended = json.loads(run("group", "history", group, "-o", "json"))["items"][-1]
    assert (ended["generation"], ended["reason"]) == (None, "the group was deleted")


def test_history_of_an_unknown_group_is_an_error(run: Run, group: str) -> None:
    assert f"{group}-2" in run("group", "history", f"{group}-2", code=4)


# --- consume -g ----------------------------------------------------------------------------------


def _consuming(bootstrap: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pyrklog", "-b", bootstrap, "consume", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


PLACE = "%t %p %o\\n"


def test_a_group_goes_on_where_it_stopped(bootstrap: str, run: Run, group: str) -> None:
    """The group has read 15 of 30 records."""
    read = run("consume", group, "-g", group, "-e", "-f", "%p %o\n").split("\n")[:-1]
    wanted = [f"0 {n}" for n in range(5, EACH)] + [f"2 {n}" for n in range(EACH)]
    assert sorted(read) == wanted
    assert run("consume", group, "-g", group, "-e") == ""
    described = json.loads(run("group", "describe", group, "-o", "json"))["items"][0]
    assert (described["state"], described["lag"]) == ("Empty", 0)


def test_group_without_offsets_begins_where_the_option_says(
    bootstrap: str, run: Run, group: str
) -> None:
    assert run("consume", group, "-g", f"{group}-new", "-o", "end", "-e") == ""
    again = run("consume", group, "-g", f"{group}-other", "-c", "7").split("\n")
    assert len(again) == 8


def test_ctrl_c_commits_and_leaves(bootstrap: str, run: Run, group: str) -> None:
    with _consuming(bootstrap, group, "-g", group) as process:
        assert len(_lines(process, 15)) == 15
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    described = json.loads(run("group", "describe", group, "-o", "json"))["items"][0]
    assert (described["state"], described["lag"]) == ("Empty", 0)


def test_a_member_that_is_killed_costs_no_record(bootstrap: str, run: Run, group: str) -> None:
    session = ("-X", "session.timeout.ms=6000")
    with _consuming(bootstrap, group, "-g", group, "-f", PLACE, *session) as process:
        first = _lines(process, 15)
        process.kill()
    then = run("consume", group, "-g", group, "-c", "1", "-e", "-f", PLACE, code=0)
    rest = run("consume", group, "-g", group, "-e", "-f", PLACE).split("\n")
    seen = {*first, *then.split("\n"), *rest} - {""}
    wanted = {f"{group} 0 {n}" for n in range(5, EACH)} | {f"{group} 2 {n}" for n in range(EACH)}
    assert seen == wanted


def test_command_shares_a_group_with_other_clients(bootstrap: str, run: Run, group: str) -> None:
    """The partitions are split, and all come back when the other one leaves."""
    with Crew(ConfluentMember(bootstrap, group, group)) as crew:
        other = crew.members[0]
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the first member")
        with _consuming(bootstrap, group, "-g", group, "-f", "%p\\n", "-v") as ours:
            crew.poll_until(lambda: 0 < len(other.assigned()) < PARTITIONS, "a share for us")
            crew.members.remove(other)
            other.close()
            fill(bootstrap, group, PARTITIONS, EACH)
            seen: set[str] = set()
            while len(seen) < PARTITIONS:
                seen |= set(_lines(ours, 1))
            ours.send_signal(signal.SIGINT)
            _, errors = ours.communicate(timeout=60)
            assert ours.returncode == 130
        assert f"this member reads {group}" in errors


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["-g", "g", "-p", "0"], 2, "exclude each other"),
        (["-g", "g", "-o", "5"], 2, "only start or end"),
        (["-g", "g", "-o", "beginning:end"], 2, "use -c or -e"),
        (["-g", ""], 2, "not an empty text"),
        (["-g", "g", "-X", "partition.assignment.strategy=none"], 2, "partition.assignment"),
    ],
)
def test_impossible_group_options_are_refused(
    run: Run, group: str, arguments: list[str], code: int, says: str
) -> None:
    assert says in run("consume", group, *arguments, code=code)


def test_a_missing_topic_is_not_waited_for(run: Run) -> None:
    assert "does not exist" in run("consume", "no-such-topic", "-g", "g", code=4)
