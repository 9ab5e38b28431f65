import json

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.cli.config_explain import explain, pages
from pyrklog.cli.failures import CliError, Exit
from pyrklog.config.broker import OPTIONS
from pyrklog.config.known import JVM_ONLY, WITHOUT_EFFECT
from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME


def test_a_topic_option() -> None:
    assert pages(explain(["retention.ms"])).splitlines() == [
        "retention.ms · topic · long",
        "  Age at which records are deleted; -1 = never.",
        "  default   604800000, or of the broker: log.retention.ms, log.retention.minutes, "
        "log.retention.hours",
        "  valid     ≥ -1",
        "  changes   at run time",
    ]


def test_a_broker_option_names_the_topic_option_behind_it() -> None:
    (item,) = explain(["log.retention.hours"])
    assert (item["kind"], item["default_of"]) == ("broker", "retention.ms")
    assert "  topics    default of retention.ms\n" in pages([item])


def test_an_option_of_topics_and_brokers_is_explained_twice() -> None:
    kinds = [one["kind"] for one in explain(["min.insync.replicas", "min.insync.replicas"])]
    assert kinds == ["topic", "broker"]


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("sasl.kerberos.kinit.cmd", "none: accepted; pyrklog lacks its feature"),
        ("kafka.metrics.reporters", "none: accepted; it concerns Java's virtual machine"),
        ("listener.name.internal.ssl.key.password", "none: accepted; pyrklog lacks its feature"),
        ("log4j.anything", "none: accepted; pyrklog lacks its feature"),
    ],
)
def test_options_without_effect(name: str, effect: str) -> None:
    (item,) = explain([name])
    assert item["effect"] == effect
    assert f"  effect    {effect}\n" in pages([item])


@pytest.mark.parametrize(
    ("name", "type_name", "default"),
    [
        ("background.threads", "int", "10"),
        ("connections.max.reauth.ms", "long", "0"),
        ("sasl.kerberos.kinit.cmd", "string", "/usr/bin/kinit"),
        ("alter.config.policy.class.name", "class", None),
    ],
)
def test_options_without_effect_have_kafkas_type_and_default(
    name: str, type_name: str, default: str | None
) -> None:
    (item,) = explain([name])
    assert (item["type"], item["default"]) == (type_name, default)
    assert f"  default   {default or '-'}\n" in pages([item])


def test_a_refused_option_is_not_called_accepted() -> None:
    (item,) = explain(["authorizer.class.name"])
    assert item["effect"].startswith("refused: access control lists are not served")


def test_an_option_of_one_listener() -> None:
    (item,) = explain(["listener.name.plaintext.max.connections"])
    assert (item["type"], item["effect"]) == ("int", "as documented")
    assert item["changes"] == "at run time, for one broker or all"
    (item,) = explain(["listener.name.plaintext.num.network.threads"])
    assert item["effect"] == "none: accepted, stored and shown"


def test_every_known_option_is_explained() -> None:
    names = [*OPTIONS, *TOPIC_OPTIONS_BY_NAME, *JVM_ONLY, *WITHOUT_EFFECT]
    for name in names:
        items = explain([name])
        assert {one["name"] for one in items} == {name}
        assert pages(items).startswith(f"{name} · ")


def test_an_unknown_option_is_told_with_similar_ones() -> None:
    with pytest.raises(CliError) as caught:
        explain(["retention.mss"])
    assert caught.value.code is Exit.NOT_FOUND
    assert caught.value.fix is not None
    assert caught.value.fix.startswith("did you mean ")
    assert "retention.ms" in caught.value.fix
    with pytest.raises(CliError) as caught:
        explain(["zzz"])
    assert caught.value.fix == "see `pyrklog config describe topic NAME`, or `broker N`"


def test_the_command_needs_no_broker() -> None:
    done = CliRunner().invoke(app, ["config", "explain", "segment.bytes"])
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "segment.bytes · topic · int")
    done = CliRunner().invoke(app, ["config", "explain", "segment.bytes", "-o", "json"])
    document = json.loads(done.stdout)
    assert document["schema"] == "pyrklog.option-explanations/1"
    assert document["items"][0]["default"] == "1073741824"
    assert CliRunner().invoke(app, ["config", "explain", "nothing"]).exit_code == 4
    assert CliRunner().invoke(app, ["config", "explain", ""]).exit_code == 2
