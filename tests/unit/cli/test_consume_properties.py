"""Properties that ``consume`` takes, and those that it names an option for."""

import pytest

from pyrklog.cli.consume_properties import refuse_without_effect
from pyrklog.cli.failures import CliError, Exit


@pytest.mark.parametrize("group", [None, "billing"])
@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("group.id", "-g"),
        ("enable.auto.commit", "-g"),
        ("auto.commit.interval.ms", "-g"),
        ("enable.auto.offset.store", "-g"),
        ("auto.offset.reset", "-o"),
        ("enable.partition.eof", "-e"),
        ("max.poll.records", "-n"),
    ],
)
def test_what_consume_sets_itself_is_refused(name: str, fix: str, group: str | None) -> None:
    with pytest.raises(CliError) as refused:
        refuse_without_effect(["client.id", name], group)
    assert refused.value.code is Exit.USAGE
    assert refused.value.what == f"consume does not take -X {name}"
    assert fix in (refused.value.fix or "")


@pytest.mark.parametrize(
    "name", ["group.instance.id", "partition.assignment.strategy", "session.timeout.ms"]
)
def test_properties_of_members_need_a_group(name: str) -> None:
    with pytest.raises(CliError, match=f"does not take -X {name}") as refused:
        refuse_without_effect([name], None)
    assert refused.value.fix == "it is for members of a group: give -g"
    refuse_without_effect([name], "billing")


@pytest.mark.parametrize("group", [None, "billing"])
def test_properties_with_an_effect_are_taken(group: str | None) -> None:
    taken = ["isolation.level", "fetch.min.bytes", "client.id", "security.protocol", "check.crcs"]
    refuse_without_effect(taken, group)
