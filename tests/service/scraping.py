"""How Prometheus scrapes the test's brokers, made of the shipped `prometheus.yml`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

SCRAPE_INTERVAL = "1s"
DETAIL_INTERVAL = "2s"
WIDE_INTERVAL = "5s"
"""Of answers of thousands of series."""
JOB = "pyrklog"
DETAIL_JOB = "detail-pyrklog"
_COMMENTED = re.compile(r"^  # (- job_name|  \w+:|    - \{)", re.MULTILINE)
_NAMES = re.compile(r"detail-pyrklog-(topic|group)-\w+")


def uncommented(template: str) -> str:
    """With the scrape jobs that the template shows as comments."""
    return _COMMENTED.sub(r"  \1", template)


def configuration(
    template: str, topic: str, group: str, targets: Mapping[str, str]
) -> dict[str, Any]:
    """``targets``: a file of targets for each job, ``pyrklog``, ``topic``, ``group`` and ``wide``,
    which asks for the topic of that name."""
    found: dict[str, Any] = yaml.safe_load(uncommented(template))
    found["global"] = {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL}
    jobs: list[dict[str, Any]] = found["scrape_configs"]
    for job in jobs:
        detail = _NAMES.fullmatch(job["job_name"])
        if detail is not None:
            kind = detail[1]
            job["job_name"] = f"{DETAIL_JOB}-{kind}"
            job["params"] = {kind: [{"topic": topic, "group": group}[kind]]}
            job["scrape_interval"] = DETAIL_INTERVAL
        _read_targets(job, targets[detail[1] if detail is not None else job["job_name"]])
    (of_topic,) = [job for job in jobs if job["job_name"] == f"{DETAIL_JOB}-topic"]
    wide = {**of_topic, "job_name": f"{DETAIL_JOB}-wide", "params": {"topic": ["wide"]}}
    wide["scrape_interval"] = WIDE_INTERVAL
    _read_targets(wide, targets["wide"])
    jobs.append(wide)
    return found


def _read_targets(job: dict[str, Any], file: str) -> None:
    """Of a file that may change, instead of those written down."""
    job.pop("static_configs", None)
    job["file_sd_configs"] = [{"files": [file], "refresh_interval": "1s"}]
