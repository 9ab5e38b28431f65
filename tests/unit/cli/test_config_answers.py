"""``config diff broker``: brokers that do not answer, and those of ``pyrklog dev``."""

from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.cluster_requests import unreached
from pyrklog.cli.config_answers import Answers, ask_each, away, without_dev_ways
from pyrklog.cli.dev_here import cluster_at
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings
from pyrklog.dev.brokers import settings
from pyrklog.dev.state import Cluster, Node
from pyrklog.protocol.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from tests.unit.cli.test_config_diff import entry

DEV = Cluster(
    "default",
    19092,
    [Node("broker", 1), Node("broker", 2), Node("zookeeper", 1), Node("network", 1)],
)


class Admin:
    """Broker 1 answers, 2 hangs, 3 has gone away, 4 refuses."""

    def by(self, _requests: Any) -> "Admin":
        return self

    def describe(self, names: list[str]) -> dict[str, Any]:
        errors = {
            "2": unreached(("h", 2), TimeoutError(), 5),
            "3": unreached(("h", 3), ConnectionRefusedError(111, "Connection refused"), 5),
            "4": CliError(Problem.NOT_AUTHORIZED, "broker 4: no"),
        }
        if names[0] in errors:
            raise errors[names[0]]
        return {names[0]: [entry("a", names[0])]}


ADMIN: Any = Admin()


def test_silent_brokers_are_named_and_the_others_compared() -> None:
    answers = ask_each(Settings(), ADMIN, ["1", "2", "3", "5"])
    assert list(answers.found) == ["1", "5"]
    answers.refuse_few()
    with pytest.raises(CliError) as told:
        answers.tell_silent()
    assert (told.value.code, told.value.what) == (Exit.PARTIAL, "brokers 2, 3 did not answer")
    assert "no answer from h:2 within 5 s" in (told.value.why or "")
    ask_each(Settings(), ADMIN, ["1", "5"]).tell_silent()


def test_one_that_is_left_alone_is_not_compared() -> None:
    with pytest.raises(CliError) as told:
        ask_each(Settings(), ADMIN, ["1", "2"]).refuse_few()
    assert (told.value.problem, told.value.what) == (Problem.NO_ANSWER, "broker 2 did not answer")
    Answers({"1": []}, {}).refuse_few()


def test_another_error_ends_the_command() -> None:
    with pytest.raises(CliError, match="broker 4: no"):
        ask_each(Settings(), ADMIN, ["1", "2", "4"])


def test_brokers_that_only_have_replicas_are_away() -> None:
    topic = MetadataTopic(0, "t", False, [MetadataPartition(0, 0, 1, 0, [1, 2], [1], [])])
    metadata = MetadataResponse(0, [MetadataBroker(1, "h", 1)], "c", 1, [topic])
    requests: Any = SimpleNamespace(metadata=lambda: metadata)
    assert list(away(requests)) == ["2"]


# --- pyrklog dev ---------------------------------------------------------------------------------


def connects(tmp_path: Any, *changes: str) -> list[dict[str, Any]]:
    """The brokers' ``zookeeper.connect``, with these endings, as an option that differs."""
    values = {}
    for node, change in zip(DEV.brokers, changes or ("", ""), strict=True):
        pairs = (one.partition("=") for one in settings(DEV, node, tmp_path))
        values[node.name] = {key: text for key, _, text in pairs}["zookeeper.connect"] + change
    return [{"name": "a", "values": {}}, {"name": "zookeeper.connect", "values": values}]


def test_ways_of_devs_network_to_the_same_server_are_no_difference(tmp_path: Any) -> None:
    found = connects(tmp_path)
    values = found[1]["values"]
    assert values["1"] != values["2"]
    assert without_dev_ways(found, DEV) == (found[:1], True)


def test_another_chroot_or_server_is_one_also_there(tmp_path: Any) -> None:
    found = connects(tmp_path, "", "2")
    assert without_dev_ways(found, DEV) == (found, False)
    found = [{"name": "zookeeper.connect", "values": {"1": "zk:2181/k", "2": "zk2:2181/k"}}]
    assert without_dev_ways(found, DEV) == (found, False)
    found = [{"name": "zookeeper.connect", "values": {"1": "zk:2181/k", "default": None}}]
    assert without_dev_ways(found, DEV) == (found, False)


def test_a_cluster_of_dev_is_known_by_its_brokers_addresses() -> None:
    here = {DEV.address_of(one) for one in DEV.brokers}
    assert cluster_at(here, [DEV]) is DEV
    assert cluster_at({*here, "h:1"}, [DEV]) is None
    assert cluster_at(set(), [DEV]) is None
