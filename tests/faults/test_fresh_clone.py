"""A fresh clone, an empty home, and the README and quick start from first line to last."""

import os
from pathlib import Path

import pytest

from tests.support.readme import PAGES, ROOT, Newcomer, tracked_copy

pytestmark = pytest.mark.jvm


@pytest.mark.timeout(1800)
def test_the_pages_from_a_fresh_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tracked_copy(tmp_path / "pyrklog")
    # What others have compiled is what cargo would compile again: the clone's own crates are new.
    monkeypatch.setenv("CARGO_TARGET_DIR", os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")))
    with Newcomer(tree, tmp_path / "home") as newcomer:
        # `make run` builds first, but its broker is to run where nobody else has its port, and
        # there nothing can be fetched.
        newcomer.outside("make build")
        assert (tree / ".venv" / ".core").exists()
        for page in PAGES:
            newcomer.follow((tree / page).read_text())
        newcomer.run(".venv/bin/pyrklog dev purge")
