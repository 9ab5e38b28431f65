import pytest

from pyrklog.balance.model import ratio
from pyrklog.cli.topic_skew import By, Load, Skew, flat_listing, largest, listing, page


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 1, 1], 1.0), ([3, 0, 0], 3.0), ([2, 1], 4 / 3), ([0, 0], 1.0), ([], 1.0)],
)
def test_ratio_of_the_most_to_the_mean(values: list[float], expected: float) -> None:
    assert ratio(values) == expected


def uneven() -> Skew:
    skew = Skew("id", By.BYTES)
    skew.brokers = {
        1: Load(leaders=2, replicas=4, bytes=4_000_000),
        2: Load(leaders=2, replicas=4, bytes=2_000_000),
    }
    skew.partitions = {("orders", 0): 100, ("orders", 1): 300, ("a\x1b", 0): 100, ("b", 2): 300}
    return skew


def test_the_page_shows_bars_and_ratios() -> None:
    assert page(uneven()).splitlines() == [
        "BROKER  LEADERS  REPLICAS  BYTES",
        f"     1        2         4   4 MB  {'█' * 20}",
        f"     2        2         4   2 MB  {'█' * 10}",
        "leaders 1.00 · replicas 1.00 · bytes 1.33 (max/mean of brokers)",
        "partitions by bytes 1.50 (max/mean) · largest b-2 300 B, orders-1 300 B, a\\x1b-0 100 B",
    ]


def test_a_broker_that_does_not_tell_its_bytes() -> None:
    skew = uneven()
    skew.brokers[3] = Load(leaders=1, replicas=1)
    skew.silent = [3]
    assert set(skew.ratios()) == {"leaders", "replicas"}
    lines = page(skew).splitlines()
    assert lines[3].split() == ["3", "1", "1", "-"]
    assert lines[-1] == "without an answer about bytes: broker 3"


def test_nothing_to_compare() -> None:
    skew = Skew(None, By.LEADERS)
    assert largest(skew) == []
    assert page(skew).splitlines()[0] == "BROKER  LEADERS  REPLICAS  BYTES"
    (item,) = listing(skew).items
    assert item["partitions_max_over_mean"] is None


def test_programs_get_the_same() -> None:
    (item,) = listing(uneven()).items
    assert item["max_over_mean"] == {"leaders": 1.0, "replicas": 1.0, "bytes": 1.3333}
    assert item["partitions_max_over_mean"] == 1.5
    assert [row["bytes"] for row in flat_listing(uneven()).items] == [4_000_000, 2_000_000]
