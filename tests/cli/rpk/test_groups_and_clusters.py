"""rpk and the rows of the feature table (docs/using/compared.md) about groups, topics and clusters,
on a broker of ours and on Apache Kafka.

What needs Redpanda's admin API is tried against one that knows nothing: the command asks it and
fails, whatever the brokers could do.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.support.commands import Run, create
from tests.support.feature_table import NO, PARTLY, YES
from tests.support.groups import fill
from tests.support.mirroring import commit
from tests.support.rpk import AdminApi, Commands, Rpk, RpkClaims
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm
COMMITTED = {0: 4, 1: 10, 2: 1}
EACH = 10
LAG = 15
"""Of a group with these offsets where each of three partitions has ten records."""


@pytest.fixture
def group(either: str, run: Run, topic: str) -> str:
    """A topic and a group of its name, which lags."""
    create(run, topic, "-p", "3")
    fill(either, topic, 3, EACH)
    commit(either, topic, topic, COMMITTED)
    return topic


def needs_redpanda(rpk: Rpk, admin: AdminApi, wanted: str, *words: str) -> None:
    """It asks for a path that begins so, and fails."""
    admin.asked.clear()
    rpk(*words, code=1)
    assert [one for one in admin.asked if one.startswith(wanted)], admin.asked


# --- groups --------------------------------------------------------------------------------------


def test_lag_totals(claim: RpkClaims, rpk: Rpk, group: str) -> None:
    told = rpk("group", "describe", group)
    assert re.search(rf"^TOTAL-LAG +{LAG}$", told, re.MULTILINE)
    rows = re.findall(rf"^{group} +(\d) +(\d+) +10 +(\d+) *$", told, re.MULTILINE)
    assert {int(one[0]): int(one[1]) for one in rows} == COMMITTED
    assert sum(int(one[2]) for one in rows) == LAG
    by_topic = rpk("group", "describe", group, "--print-lag-per-topic")
    assert re.search(rf"^{group} +{LAG}$", by_topic, re.MULTILINE)
    claim(rpk=YES)


def test_lag_seconds(claim: RpkClaims, rpk: Rpk, group: str) -> None:
    told = rpk("group", "describe", group).splitlines()
    [heading] = [line.split() for line in told if line.startswith("TOPIC")]
    assert "LAG" in heading
    assert not [word for word in heading if "SEC" in word or "TIME" in word]
    claim(rpk=NO)


def test_lag_history_built_in(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("trend", "history")
    claim(rpk=NO)


def test_seek_to_any_offset(claim: RpkClaims, rpk: Rpk, run: Run, group: str) -> None:
    """By a file; `--to` knows start, end and times."""
    file = rpk.home / "offsets"
    file.write_text("".join(f"{group} {number} {number + 3}\n" for number in range(3)))
    rows = rpk.rows("group", "seek", group, "--to-file", str(file))
    wanted = [[group, str(n), str(COMMITTED[n]), str(n + 3)] for n in range(3)]
    assert sorted(rows) == wanted
    assert sorted(run("group", "export", group).splitlines()) == [
        f"{group},{number},{number + 3}" for number in range(3)
    ]
    rpk("group", "seek", group, "--to", "start")
    [found] = json.loads(run("group", "describe", group, "-o", "json"))["items"]
    assert {one["committed"] for one in found["partitions"]} == {0}
    claim(rpk=YES)


def test_rebalance_reasons(claim: RpkClaims, rpk: Rpk, group: str, commands: Commands) -> None:
    wanted = {"delete", "describe", "list", "offset-delete", "seek"}
    assert commands.under("group") == wanted
    assert "reason" not in rpk("group", "describe", group).replace(group, "").lower()
    commands.lack("rebalance reason", "rebalance history")
    claim(rpk=NO)


# --- topics and their partitions -----------------------------------------------------------------


def test_add_partitions(claim: RpkClaims, rpk: Rpk, run: Run, topic: str) -> None:
    create(run, topic, "-p", "2")
    assert rpk.rows("topic", "add-partitions", topic, "--num", "2") == [[topic, "OK"]]

    def listed() -> int:
        [found] = json.loads(run("topic", "describe", topic, "-o", "json"))["items"]
        return len(found["partitions"])

    wait_until(lambda: listed() == 4, "the partitions are not there")
    claim(rpk=YES)


def test_change_replication_factor(
    claim: RpkClaims, rpk: Rpk, admin: AdminApi, run: Run, topic: str
) -> None:
    """Partition by partition, of Redpanda. Its topics have an option for it; Kafka's have none."""
    create(run, topic)
    words = ("cluster", "partitions", "move", topic, "-p", "0:1,2,3")
    needs_redpanda(rpk, admin, f"/v1/partitions/kafka/{topic}/0", *words)
    told = rpk("topic", "alter-config", topic, "--set", "replication.factor=3")
    assert "INVALID_CONFIG: Unknown topic config name: replication.factor" in told
    claim(rpk=PARTLY)


def test_count_skew(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("skew", "max/mean")
    claim(rpk=NO)


def test_byte_rate_skew(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("skew", "bytes per second of")
    claim(rpk=NO)


def test_reassignment_plan(claim: RpkClaims, commands: Commands) -> None:
    """One names each replica. The one plan that it shows recovers partitions without a majority."""
    wanted = {"balancer-status", "disable", "enable", "list", "move", "move-cancel"}
    more = {"move-status", "transfer-leadership", "unsafe-recover"}
    assert commands.under("cluster partitions") == wanted | more
    assert commands.saying(" plan") == {"cluster partitions unsafe-recover"}
    commands.lack("--generate", "--broker-list")
    claim(rpk=NO)


def test_plan_with_bytes_and_time(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("estimate", "eta ")
    # Of moves that are under way.
    under_way = {"cluster partitions move-status", "redpanda admin brokers decommission-status"}
    assert commands.saying("bytes-remaining") == under_way
    claim(rpk=NO)


def test_progress_in_percent_cancel(
    claim: RpkClaims, rpk: Rpk, admin: AdminApi, commands: Commands
) -> None:
    """Of Redpanda's moves."""
    assert "COMPLETION-%" in commands.helps["cluster partitions move-status"]
    moves = ("cluster", "partitions")
    needs_redpanda(rpk, admin, "/v1/partitions/reconfigurations", *moves, "move-status")
    cancel = (*moves, "move-cancel", "--no-confirm")
    needs_redpanda(rpk, admin, "/v1/cluster/cancel_reconfigurations", *cancel)
    claim(rpk=PARTLY)


def test_preferred_election(
    claim: RpkClaims, rpk: Rpk, admin: AdminApi, topic: str, run: Run, commands: Commands
) -> None:
    """A leader that one names, one partition at a time, of Redpanda."""
    create(run, topic)
    words = ("cluster", "partitions", "transfer-leadership", topic, "-p", "0:1")
    needs_redpanda(rpk, admin, f"/v1/partitions/kafka/{topic}/0", *words)
    commands.lack("preferred", "elect-leader", "election")
    claim(rpk=PARTLY)


# --- the cluster ---------------------------------------------------------------------------------


def test_health_wait_and_watch(
    claim: RpkClaims, rpk: Rpk, admin: AdminApi, commands: Commands
) -> None:
    """Of Redpanda."""
    for option in ("--exit-when-healthy", "--watch"):
        assert option in commands.helps["cluster health"]
        needs_redpanda(rpk, admin, "/v1/cluster/health_overview", "cluster", "health", option)
    claim(rpk=PARTLY)


def test_restart_safe(claim: RpkClaims, rpk: Rpk, admin: AdminApi, commands: Commands) -> None:
    """It drains a broker of Redpanda for a restart; it does not say whether that is safe."""
    assert "Wait until node is drained" in commands.helps["cluster maintenance enable"]
    words = ("cluster", "maintenance", "enable", "1", "--wait")
    needs_redpanda(rpk, admin, "/v1/brokers/1", *words)
    commands.lack("safe to", "restart-safe")
    claim(rpk=PARTLY)


def test_replica_verification(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("digest", "checksum", "verify replica")
    commands.lack_command("verify")
    claim(rpk=NO)


def test_state_log_merge(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("state change", "state-change")
    commands.lack_command("merge", "merge-state")
    claim(rpk=NO)


def test_kip_714_exposed(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("client-metrics", "client metrics", "kip-714")
    claim(rpk=NO)


def test_cache_and_disk_by_topic(
    claim: RpkClaims, either: str, rpk: Rpk, run: Run, topic: str, commands: Commands
) -> None:
    create(run, topic)
    fill(either, topic, 1, 100)
    words = ("cluster", "logdirs", "describe", "--topics", topic, "--aggregate-into", "topic")
    sizes: list[int] = []

    def are_equal() -> bool:
        """What is written later comes to the disk between the two questions."""
        [found] = json.loads(run("topic", "describe", topic, "-o", "json"))["items"]
        [[_, _, named, size]] = rpk.rows(*words)
        assert named == topic
        sizes[:] = [found["partitions"][0]["size"], int(size)]
        return sizes[0] == sizes[1] > 0

    wait_until(are_equal, lambda: f"the sizes are {sizes}")
    commands.lack("cache hit", "disk read")
    claim(rpk=PARTLY)
