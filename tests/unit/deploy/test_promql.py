import pytest

from tests.unit.deploy.promql import grouped_by, labels_of, reads, wrong_with

FETCHED = "pyrklog_fetched_bytes_total"


def test_metrics_are_found_among_functions_words_and_texts() -> None:
    expr = (
        f'sum by (path, job) (rate({FETCHED}{{job="up or pyrklog_x", path=~"a|b"}}[5m:1m])) '
        "/ on (job) group_left () count(up == bool 0) unless pyrklog_ready offset 5m > 1.5e3"
    )
    found = reads(expr.replace("offset 5m ", "").replace("1.5e3", "15"))
    assert [(one.metric, sorted(one.matched)) for one in found] == [
        (FETCHED, ["job", "path"]),
        ("up", []),
        ("pyrklog_ready", []),
    ]
    assert grouped_by(expr) == {"path", "job"}
    assert labels_of(expr) == {"path", "job"}
    assert labels_of(f"{FETCHED} > 0") == {"path", "job", "instance"}


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("pyrklog_redy == 0", "pyrklog_redy is no metric"),
        ('pyrklog_ready{log_dir="/d"} == 0', "pyrklog_ready has no label log_dir"),
        ("sum by (log_dir) (pyrklog_ready)", "nothing has the label log_dir"),
        ("time() > 5", "'time() > 5' reads nothing"),
    ],
)
def test_what_no_broker_has_is_found(expr: str, said: str) -> None:
    assert wrong_with(expr) == [said]


def test_a_good_expression_has_nothing_wrong() -> None:
    assert wrong_with('max by (log_dir) (pyrklog_log_dir_read_only{job="a"}) == 1') == []
