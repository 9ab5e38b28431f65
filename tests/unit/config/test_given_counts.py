from pathlib import Path

import pytest

from pyrklog.config.given_counts import GivenCounts, count_given, summary
from pyrklog.config.load import load_config

FILE = """process.roles=broker,controller
num.partitions=3
log.retention.hours=24
background.threads=10
metric.reporters=com.example.Reporter
controller.quorum.voters=1@localhost:9093
com.example.reporter.interval=5
listener.name.plaintext.max.connections=7
log4j.logger.kafka=INFO
"""


def test_each_option_of_a_file_of_kafkas_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(FILE)
    config = load_config(file=path, overrides=["num.partitions=4"])
    found = count_given(config.given)
    assert found == GivenCounts(effective=3, without_effect=4, jvm_only=1, unknown=1)
    assert found.total == len(FILE.splitlines())
    assert summary(found) == (
        "9 options are given: 3 take effect, 4 have none in this version, 1 is for Java only, "
        "1 is unknown"
    )


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (GivenCounts(0, 0, 0, 0), "no option is given"),
        (GivenCounts(1, 0, 0, 0), "1 option is given, and takes effect"),
        (GivenCounts(7, 0, 0, 0), "7 options are given, and take effect"),
        (GivenCounts(0, 1, 0, 0), "1 option is given: 1 has none in this version"),
        (GivenCounts(1, 0, 2, 0), "3 options are given: 1 takes effect, 2 are for Java only"),
    ],
)
def test_numbers_are_told_as_people_say_them(counts: GivenCounts, said: str) -> None:
    assert summary(counts) == said
