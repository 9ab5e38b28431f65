"""Deletions of topics whose replicas are unreachable."""

from tests.unit.controller.runner import Runner, assignment, live


def created(runner: Runner, replicas: tuple[int, ...]) -> None:
    runner.run(runner.controller.topics_changed({"t": assignment(replicas)}, ["t"]))


def test_a_deletion_waits_for_a_dead_broker_only_with_its_end() -> None:
    """As in Kafka: clients are told at once, and live brokers free the space."""
    runner = Runner()
    runner.start(live(1, 2, 3))
    created(runner, (1, 2, 3))
    runner.run(runner.controller.brokers_changed(live(1)))
    assert runner.run(runner.controller.deletion_asked(["t"])) == [
        "1 <- metadata t-0:-2@1 offline 2,3 brokers 1",
        "1 <- stop t-0@-2 delete",
    ]
    assert runner.stop_answered(1) == []
    lines = runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert lines[-1] == "2 <- stop t-0@-2 delete"
    assert "1 <- stop t-0@-2 delete" not in lines
    assert runner.stop_answered(2) == [], "the third one is still away"
    runner.run(runner.controller.brokers_changed(live(1, 2, 3)))
    assert runner.stop_answered(3) == ["delete nodes t"]


def test_topic_of_absent_brokers_is_deleted_when_they_return() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, (1,))
    runner.run(runner.controller.brokers_changed(live(2)))
    told = runner.run(runner.controller.deletion_asked(["t"]))
    assert told == ["2 <- metadata t-0:-2@1 offline 1 brokers 2"]
    runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert runner.stop_answered(1) == ["delete nodes t"]


def test_a_deletion_waits_for_a_failed_log_directory_only_with_its_end() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, (1, 2))
    runner.controller.state.failed_replicas[2] = {("t", 0)}
    lines = runner.run(runner.controller.deletion_asked(["t"]))
    assert lines[-1] == "1 <- stop t-0@-2 delete"
    assert runner.stop_answered(1) == []
    runner.run(runner.controller.brokers_changed(live(1) | live(2, epoch=300)))
    assert runner.stop_answered(2) == ["delete nodes t"]
