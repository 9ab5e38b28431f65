"""The shipped scrape configuration, for brokers of a test."""

from pathlib import Path
from typing import Any

from pyrklog.deploy.files import KINDS, Settings
from tests.service.scraping import configuration, uncommented

TARGETS = {name: f"/t/{name}.json" for name in ("pyrklog", "topic", "group", "wide")}


def template() -> str:
    (found,) = KINDS["prometheus"].files(Settings(Path("/pyrklog"))).values()
    return found


def test_the_jobs_that_are_comments_become_jobs() -> None:
    text = "scrape_configs:\n  # - job_name: a\n  #   params: {x: [y]}\n  # words: of a sentence\n"
    assert uncommented(text) == (
        "scrape_configs:\n  - job_name: a\n    params: {x: [y]}\n  # words: of a sentence\n"
    )


def test_every_job_reads_a_file_of_targets() -> None:
    found = configuration(template(), "orders", "billing", TARGETS)
    jobs = {one["job_name"]: one for one in found["scrape_configs"]}
    in_detail = {f"detail-pyrklog-{kind}" for kind in ("topic", "group", "wide")}
    assert set(jobs) == {"pyrklog"} | in_detail
    for name, job in jobs.items():
        assert "static_configs" not in job
        (source,) = job["file_sd_configs"]
        assert source["files"] == [TARGETS[name.rpartition("-")[2]]]
    assert jobs["detail-pyrklog-topic"]["params"] == {"topic": ["orders"]}
    assert jobs["detail-pyrklog-group"]["params"] == {"group": ["billing"]}
    assert jobs["detail-pyrklog-wide"]["params"] == {"topic": ["wide"]}


def labels_of(job: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """Of each series of a job and a target, as Prometheus makes them of what the jobs use."""
    labels = {"job": job["job_name"]}
    labels |= {f"__param_{name}": values[0] for name, values in job.get("params", {}).items()}
    for rule in job.get("relabel_configs", []):
        (source,) = rule.get("source_labels", [""])
        labels[rule["target_label"]] = rule.get("replacement", labels.get(source, ""))
    return frozenset(
        (name, value) for name, value in labels.items() if value and not name.startswith("__")
    )


def test_no_two_jobs_write_the_same_series() -> None:
    """They would in turns: an alert about one of them never lasts."""
    found = configuration(template(), "orders", "billing", TARGETS)
    labels = [labels_of(job) for job in found["scrape_configs"]]
    assert labels == [
        {("job", "pyrklog")},
        {("job", "detail-pyrklog"), ("detail_topic", "orders")},
        {("job", "detail-pyrklog"), ("detail_group", "billing")},
        {("job", "detail-pyrklog"), ("detail_topic", "wide")},
    ]


def test_jobs_in_detail_are_renamed_as_shipped() -> None:
    found = configuration(template(), "orders", "billing", TARGETS)
    for job in found["scrape_configs"]:
        renamed = [
            one["replacement"]
            for one in job.get("relabel_configs", [])
            if one["target_label"] == "job"
        ]
        assert renamed == ([] if job["job_name"] == "pyrklog" else ["detail-pyrklog"])
        assert job.get("metrics_path", "/metrics") == (
            "/metrics" if job["job_name"] == "pyrklog" else "/metrics/detail"
        )
    assert found["global"] == {"scrape_interval": "1s", "evaluation_interval": "1s"}
    assert found["rule_files"] == ["pyrklog-alerts.yml"]
