"""``pyrklog config`` on our broker and on Apache Kafka."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from tests.support.commands import Run, create, runner
from tests.support.waiting import wait_until


def entries(run: Run, kind: str, name: str, *more: str) -> dict[str, dict[str, Any]]:
    document = json.loads(run("config", "describe", kind, name, *more, "-o", "json"))
    assert document["schema"] == "pyrklog.configs/1"
    (item,) = document["items"]
    assert (item["kind"], item["resource"]) == (kind, name)
    return {one["name"]: one for one in item["configs"]}


def await_value(run: Run, kind: str, name: str, option: str, value: str | None) -> None:
    """Apache Kafka's brokers learn of changes a moment later."""

    def has_it() -> bool:
        return entries(run, kind, name).get(option, {}).get("value") == value

    wait_until(has_it, f"{option} of {kind} {name} is not {value}")


def broker_number(run: Run) -> str:
    (item,) = json.loads(run("cluster", "brokers", "-o", "json"))["items"]
    return str(item["broker"])


def test_options_of_a_topic_with_source_and_default(run: Run, topic: str) -> None:
    create(run, topic, "-c", "retention.ms=5000", "-c", "cleanup.policy=compact")
    found = entries(run, "topic", topic)
    retention = found["retention.ms"]
    assert (retention["value"], retention["source"]) == ("5000", "topic")
    assert retention["default"] == "604800000"
    assert retention["type"] == "long"
    assert retention["documentation"]
    assert retention["synonyms"][0] == {"name": "retention.ms", "value": "5000", "source": "topic"}
    assert found["min.insync.replicas"]["source"] == "default"
    changed = entries(run, "topic", topic, "--changed")
    assert {"retention.ms", "cleanup.policy"} <= set(changed)
    assert all(one["source"] != "default" for one in changed.values())
    only = run("config", "describe", "topic", topic, "-k", "retention.ms", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(only))
    assert (row["resource"], row["name"], row["value"]) == (topic, "retention.ms", "5000")
    page = run("config", "describe", "topic", topic, "-k", "retention.ms", "-o", "wide")
    lines = page.splitlines()
    assert lines[0] == f"topic {topic}"
    assert lines[1].split() == ["OPTION", "VALUE", "SOURCE", "DEFAULT", "READ_ONLY", "TYPE", "WHY"]
    assert lines[2].split()[:4] == ["retention.ms", "5000", "topic", "604800000"]
    assert "retention.ms=5000 (topic)" in lines[2]


def test_options_of_brokers(run: Run) -> None:
    number = broker_number(run)
    found = entries(run, "broker", number)
    assert found["broker.id"]["value"] == number
    assert found["broker.id"]["read_only"]
    assert not found["message.max.bytes"]["read_only"]
    set_for_all = ["config", "alter", "broker", "default", "--set", "message.max.bytes=1234567"]
    try:
        assert run(*set_for_all) == "broker default: message.max.bytes - -> 1234567\n"
        await_value(run, "broker", "default", "message.max.bytes", "1234567")
    finally:
        told = run("config", "alter", "broker", "default", "--unset", "message.max.bytes")
    assert told.startswith("broker default: message.max.bytes 1234567 -> ")


def test_options_are_changed(run: Run, topic: str) -> None:
    create(run, topic)
    alter = ["config", "alter", "topic", topic]
    change = [*alter, "--set", "retention.ms=5000", "--append", "cleanup.policy=compact,delete"]
    would = run(*change, "--dry-run").splitlines()
    assert would == [
        f"topic {topic}: retention.ms 604800000 -> 5000 (not done)",
        f"topic {topic}: cleanup.policy delete -> delete,compact (not done)",
    ]
    assert entries(run, "topic", topic)["retention.ms"]["value"] == "604800000"
    assert run(*change).splitlines() == [line.removesuffix(" (not done)") for line in would]
    await_value(run, "topic", topic, "retention.ms", "5000")
    assert entries(run, "topic", topic)["cleanup.policy"]["value"] == "delete,compact"
    told = run(*alter, "--unset", "retention.ms", "--subtract", "cleanup.policy=delete")
    assert told.splitlines() == [
        f"topic {topic}: retention.ms 5000 -> default",
        f"topic {topic}: cleanup.policy delete,compact -> compact",
    ]
    await_value(run, "topic", topic, "cleanup.policy", "compact")
    assert entries(run, "topic", topic)["retention.ms"]["source"] == "default"


def test_several_topics_are_changed(run: Run, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        create(run, name)
    assert len(run("config", "alter", "topic", *names, "--set", "retention.ms=7").splitlines()) == 3
    for name in names:
        await_value(run, "topic", name, "retention.ms", "7")


def test_what_no_resource_has_is_not_listed(run: Run, either: str, topic: str) -> None:
    create(run, topic)
    describe = ["-b", either, "config", "describe", "topic", topic]
    done = CliRunner().invoke(app, [*describe, "-k", "retention.mss"])
    assert (done.exit_code, done.stdout) == (4, "")
    assert f"topic {topic} has no option retention.mss\n  fix: did you mean" in done.stderr
    done = CliRunner().invoke(app, [*describe, "-k", "retention.mss", "-k", "retention.ms"])
    assert done.exit_code == 4
    assert "604800000" in done.stdout


def test_changes_that_are_refused(run: Run, topic: str) -> None:
    create(run, topic)
    alter = ["config", "alter", "topic", topic]
    told = run(*alter, "--set", "retention.mss=5", code=1)
    assert "did you mean retention.ms?" in told
    assert "error[PK68]: topic" in run(*alter, "--set", "retention.ms=soon", code=1)
    assert "has no option retention.mss" in run(*alter, "--unset", "retention.mss", code=1)
    listed = f"has no option no.such\n  fix: see `pyrklog config describe topic {topic}`"
    assert listed in run(*alter, "--unset", "no.such", code=1)
    assert listed in run("topic", "alter", topic, "--unset", "no.such", code=1)
    told = run(*alter, "--append", "retention.ms=3", code=1)
    assert "fix: it is no list: give --set NAME=VALUE" in told
    assert "nothing to change" in run(*alter, code=2)
    twice = run(*alter, "--set", "retention.ms=5", "--unset", "retention.ms", code=2)
    assert "retention.ms is changed twice" in twice
    told = run("config", "alter", "topic", f"{topic}x", "--set", "retention.ms=5", code=4)
    assert f"did you mean {topic}?" in told
    assert "no broker 99" in run("config", "describe", "broker", "99", code=4)
    assert "is its number, or default" in run("config", "describe", "broker", "one", code=2)
    told = run("config", "describe", "topic", topic, "-k", "no.such", code=4)
    assert f"has no option no.such\n  fix: see `pyrklog config describe topic {topic}`" in told
    assert "NAME takes" in run("config", "describe", "topic", "", code=2)
    run("config", "describe", "group", "g", code=2)
    number = broker_number(run)
    told = run("config", "alter", "broker", number, "--set", "broker.id=5", code=1)
    assert f"error[PK68]: broker {number}: " in told


@pytest.mark.parametrize(
    ("option", "value", "default"),
    [
        ("leader.replication.throttled.rate", "5000", str(2**63 - 1)),
        ("listener.name.plaintext.max.connections", "500", None),
    ],
)
def test_options_that_brokers_tell_only_while_they_are_set(
    broker: Any, option: str, value: str, default: str | None
) -> None:
    run = runner(broker.bootstrap)
    number = broker_number(run)
    found = entries(run, "broker", number, "-k", option)[option]
    assert (found["value"], found["source"], found["default"]) == (default, "default", default)
    alter = ["config", "alter", "broker", number]
    run(*alter, "--set", f"{option}={value}")
    await_value(run, "broker", number, option, value)
    for _ in range(2):
        told = run(*alter, "--unset", option)
        assert told.startswith(f"broker {number}: {option} ")
    await_value(run, "broker", number, option, None)
    assert entries(run, "broker", number, "-k", option)[option]["value"] == default


@pytest.mark.jvm
def test_a_dynamic_option_that_kafka_refuses_is_explained(apache_kafka: str) -> None:
    run = runner(apache_kafka)
    alter = ["config", "alter", "broker", broker_number(run)]
    told = run(*alter, "--set", "log.cleaner.threads=99", code=1)
    assert told.endswith("fix: see `pyrklog config explain log.cleaner.threads`\n")


def test_subscriptions_of_client_metrics(run: Run, topic: str) -> None:
    told = run("config", "alter", "client-metrics", topic, "--set", "interval.ms=60000")
    assert told.startswith(f"client-metrics {topic}: interval.ms ")
    assert told.endswith(" -> 60000\n")

    def listed() -> list[str]:
        told = json.loads(run("config", "describe", "client-metrics", "-o", "json"))
        return [one["resource"] for one in told["items"]]

    wait_until(lambda: topic in listed(), "the subscription is not listed")
    await_value(run, "client-metrics", topic, "interval.ms", "60000")
    assert entries(run, "client-metrics", topic)["interval.ms"]["source"] == "client-metrics"
    told = run("config", "alter", "client-metrics", topic, "--unset", "interval.ms")
    assert told.splitlines() == [
        f"client-metrics {topic}: interval.ms 60000 -> 300000",
        f"client-metrics {topic}: no option is set any more, so the subscription is gone",
    ]
    wait_until(lambda: topic not in listed(), "the subscription without options is listed still")
    told = run("config", "describe", "client-metrics", topic, code=4)
    assert f"there is no subscription {topic} to client metrics" in told


def test_items_of_client_metrics_are_added_and_taken(broker: Any, topic: str) -> None:
    run = runner(broker.bootstrap)
    alter = ["config", "alter", "client-metrics", topic]
    told = run(*alter, "--append", "metrics=a.,b.")
    assert told == f"client-metrics {topic}: metrics - -> a.,b.\n"
    run(*alter, "--subtract", "metrics=a.", "--set", "match=client_id=x")
    found = entries(run, "client-metrics", topic)
    assert (found["metrics"]["value"], found["match"]["value"]) == ("b.", "client_id=x")


def test_a_subscription_without_an_interval_has_kafkas_default(run: Run, topic: str) -> None:
    alter = ["config", "alter", "client-metrics", topic]
    run(*alter, "--set", "interval.ms=60000", "--set", "metrics=a.")
    wait_until(
        lambda: "metrics" in entries(run, "client-metrics", topic), "the subscription is not there"
    )
    told = run(*alter, "--unset", "interval.ms")
    assert told == f"client-metrics {topic}: interval.ms 60000 -> 300000\n"
    # Apache Kafka 3.9 tells only what is set.
    await_value(run, "client-metrics", topic, "metrics", "a.")
    gone = "no option is set any more, so the subscription is gone"
    told = run(*alter, "--unset", "metrics", "--dry-run")
    assert told.splitlines() == [
        f"client-metrics {topic}: metrics a. -> - (not done)",
        f"client-metrics {topic}: {gone} (not done)",
    ]


def test_levels_of_loggers(run: Run) -> None:
    number = broker_number(run)
    alter = ["config", "alter", "broker-loggers", number]
    found = entries(run, "broker-loggers", number)
    root = found["root"]["value"]
    # A logger of ours, and one of Kafka's.
    name = "groups" if "groups" in found else "kafka.server.KafkaApis"
    level = found[name]["value"]
    assert found[name]["source"] == "dynamic-broker-logger"
    other = "DEBUG" if level != "DEBUG" else "ERROR"
    told = run(*alter, "--set", f"{name}={other.lower()}", "--dry-run")
    assert told == f"broker-loggers {number}: {name} {level} -> {other} (not done)\n"
    assert entries(run, "broker-loggers", number, "-k", name)[name]["value"] == level
    try:
        told = run(*alter, "--set", f"{name}={other.lower()}")
        assert told == f"broker-loggers {number}: {name} {level} -> {other}\n"
        (only,) = entries(run, "broker-loggers", number, "-k", name).values()
        assert (only["value"], only["read_only"]) == (other, False)
        assert name in entries(run, "broker-loggers", number, "--changed")
        assert f"{name} " in run("config", "diff", "broker-loggers", number, code=8)
    finally:
        told = run(*alter, "--unset", name)
    inherited = entries(run, "broker-loggers", number)[name]
    assert inherited["value"] == inherited["default"]
    assert told == f"broker-loggers {number}: {name} {other} -> {inherited['value']}\n"
    assert run("config", "describe", "broker-loggers", number, "-k", "root").split()[-2:] == [
        "dynamic-broker-logger",
        root,
    ]


def test_levels_that_are_refused(broker: Any) -> None:
    run = runner(broker.bootstrap)
    number = broker_number(run)
    alter = ["config", "alter", "broker-loggers", number]
    assert "levels: TRACE, DEBUG, INFO" in run(*alter, "--set", "root=loud", code=2)
    assert f"loggers of broker {number}: admin, " in run(*alter, "--set", "zz=DEBUG", code=1)
    assert "did you mean groups?" in run(*alter, "--set", "group=DEBUG", code=1)
    assert "did you mean groups?" in run(*alter, "--unset", "group", code=1)
    assert "Removing the log level of the root" in run(*alter, "--unset", "root", code=1)
    assert "is no list" in run(*alter, "--append", "groups=DEBUG", code=2)
    assert "give --set groups=DEBUG" in run(*alter, "groups=DEBUG", code=2)
    describe = ["config", "describe", "broker-loggers"]
    told = run(*describe, "default", code=2)
    fix = f"brokers alive: {number}\n"
    assert f"a broker's name is its number, not 'default'\n  fix: {fix}" in told
    assert "did you mean groups?" in run(*describe, number, "-k", "group", code=4)
    assert f"which broker?\n  fix: name one or more; {fix}" in run(*describe, code=2)


def test_wrong_client_metrics_are_refused(broker: Any, topic: str) -> None:
    run = runner(broker.bootstrap)
    alter = ["config", "alter", "client-metrics", topic]
    told = run(*alter, "--set", "interval.ms=5", code=1)
    assert "interval must be between 100 and 3600000 (1 hour)" in told
    assert "did you mean interval.ms?" in run(*alter, "--set", "interval=500", code=1)
    assert "Illegal client matching pattern: a=b" in run(*alter, "--set", "match=a=b", code=1)
    assert "which topic?" in run("config", "describe", "topic", code=2)


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ("message.max.bytes=1234567", ""),
        ("background.threads=11", " (without effect in pyrklog)"),
        ("listener.name.plaintext.num.network.threads=3", " (without effect in pyrklog)"),
        ("num.network.threads=4", " (from the next start)"),
    ],
)
def test_changes_that_do_not_act_at_once_are_told(broker: Any, change: str, remark: str) -> None:
    run = runner(broker.bootstrap)
    command = ["config", "alter", "broker", "default", "--set", change, "--dry-run"]
    assert run(*command).endswith(f"-> {change.partition('=')[2]}{remark} (not done)\n")


def test_a_start_names_what_a_change_at_run_time_overrules(
    new_broker: Callable[..., TestBroker],
) -> None:
    options = {"message.max.bytes": 2_000_000, "log.retention.ms": 70_000_000}
    broker = new_broker(options=options).start()
    alter = ["config", "alter", "broker"]
    same = ["--set", "log.retention.ms=70000000"]
    run = runner(broker.bootstrap)
    number = broker_number(run)
    run(*alter, "default", "--set", "message.max.bytes=3000000", *same)
    broker.stop()
    broker.start()
    (told,) = [line for line in broker.log if "option_overruled" in line]
    assert "pyrklog config alter broker default --unset message.max.bytes" in told
    run(*alter, "default", "--unset", "message.max.bytes")
    run(*alter, number, "--set", "message.max.bytes=4000000")
    broker.stop()
    broker.start()
    told = [line for line in broker.log if "option_overruled" in line][-1]
    assert f"pyrklog config alter broker {number} --unset message.max.bytes" in told


@pytest.mark.jvm
def test_what_pyrklog_does_is_not_said_of_kafka(apache_kafka: str) -> None:
    change = ["config", "alter", "broker", "default", "--set", "background.threads=11"]
    told = runner(apache_kafka)(*change, "--dry-run")
    assert told.endswith("-> 11 (not done)\n")


def test_what_is_refused_is_answered_with_what_to_do(broker: Any, topic: str) -> None:
    run = runner(broker.bootstrap)
    create(run, topic)
    told = run("config", "describe", "topic", topic, "-k", "cleanup.polcy", code=4)
    assert "fix: did you mean cleanup.policy?" in told
    told = run("config", "alter", "topic", topic, "--set", "retention.ms=soon", code=1)
    assert "fix: see `pyrklog config explain retention.ms`" in told
    told = run("config", "alter", "broker", "1", "--set", "broker.id=5", code=1)
    assert "fix: set it in the broker's file (pyrklog: --config, or serve --set)" in told
    told = run("config", "alter", "broker", "default", "--set", "retention.ms=5", code=1)
    assert told.count("did you mean") == 1
    told = run("config", "describe", "topic", topic, "-X", "sasl.usrname=me", code=2)
    assert 'No such configuration property: "sasl.usrname"' in told


def test_options_that_differ(run: Run, topic: str) -> None:
    other = f"{topic}-other"
    create(run, topic, "-c", "retention.ms=5000")
    create(run, other, "-c", "cleanup.policy=compact")
    document = json.loads(run("config", "diff", "topic", topic, other, "-o", "json", code=8))
    assert {one["name"]: one["values"] for one in document["items"]} == {
        "cleanup.policy": {topic: "delete", other: "compact"},
        "retention.ms": {topic: "5000", other: "604800000"},
    }
    lines = run("config", "diff", "topic", topic, other, code=8).splitlines()
    assert lines[0].split() == ["OPTION", topic, other]
    assert lines[1].split() == ["cleanup.policy", "delete", "compact"]
    lines = run("config", "diff", "topic", topic, code=8).splitlines()
    assert lines[0].split() == ["OPTION", topic, "default"]
    assert ["retention.ms", "5000", "604800000"] in [line.split() for line in lines]
    run("config", "alter", "topic", other, "--set", "retention.ms=5000")
    run("config", "alter", "topic", other, "--unset", "cleanup.policy")
    await_value(run, "topic", other, "cleanup.policy", "delete")
    assert run("config", "diff", "topic", topic, other) == ""
    assert "which topic?" in run("config", "diff", "topic", code=2)


def test_a_broker_and_its_defaults(run: Run) -> None:
    number = broker_number(run)
    shown = run("config", "diff", "broker", "--all", "-o", "csv", code=8)
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(shown))}
    assert rows["log.dirs"][f"value {number}"].startswith("/")
    shown = run("config", "diff", "broker", number, "-o", "jsonl", code=8)
    assert "log.dirs" not in {json.loads(line)["name"] for line in shown.splitlines()}


def test_a_broker_and_what_is_set_for_all(broker: Any) -> None:
    run = runner(broker.bootstrap)
    number = broker_number(run)
    diff = ["config", "diff", "broker", number, "default"]
    assert run(*diff) == ""
    run("config", "alter", "broker", "default", "--set", "log.retention.bytes=123456")
    run("config", "alter", "broker", number, "--set", "log.retention.bytes=654321")
    try:
        await_value(run, "broker", number, "log.retention.bytes", "654321")
        lines = [line.split() for line in run(*diff, code=8).splitlines()]
        assert lines == [
            ["OPTION", number, "default"],
            ["log.retention.bytes", "654321", "123456"],
        ]
    finally:
        for name in (number, "default"):
            run("config", "alter", "broker", name, "--unset", "log.retention.bytes")


def test_encryption_is_refused(broker: Any) -> None:
    told = runner(broker.bootstrap)(
        "config", "describe", "broker", "1", "-X", "security.protocol=SSL", code=1
    )
    assert "cannot use security.protocol=ssl" in told
    assert told.endswith("-b, or use Apache Kafka's kafka-configs.sh\n")


@pytest.mark.parametrize("command", ["describe", "diff"])
def test_a_closed_port_is_reported(command: str) -> None:
    told = runner("127.0.0.1:1")("config", command, "topic", "a", code=3)
    assert told.startswith(
        "error[PK30]: no broker reached (127.0.0.1:1: Connection refused)\n  fix: "
    )
