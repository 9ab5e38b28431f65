"""The shipped scrape configuration, for brokers of a test."""

from pathlib import Path

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


def test_jobs_in_detail_are_renamed_as_shipped() -> None:
    found = configuration(template(), "orders", "billing", TARGETS)
    for job in found["scrape_configs"]:
        renamed = [one["replacement"] for one in job.get("relabel_configs", [])]
        assert renamed == ([] if job["job_name"] == "pyrklog" else ["detail-pyrklog"])
        assert job.get("metrics_path", "/metrics") == (
            "/metrics" if job["job_name"] == "pyrklog" else "/metrics/detail"
        )
    assert found["global"] == {"scrape_interval": "1s", "evaluation_interval": "1s"}
    assert found["rule_files"] == ["pyrklog-alerts.yml"]
