"""A fresh clone, an empty home, and the README and quick start from first line to last."""

import os
from pathlib import Path

import pytest

from tests.support.readme import PAGES, ROOT, Newcomer, tracked_copy

pytestmark = pytest.mark.jvm


@pytest.mark.timeout(1800)
def test_commands_of_the_pages_work_in_a_fresh_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tracked_copy(tmp_path / "pyrklog")
    # Shares compiled dependencies; cargo compiles the clone's own crates anew.
    monkeypatch.setenv("CARGO_TARGET_DIR", os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")))
    with Newcomer(tree, tmp_path / "home") as newcomer:
        # ``make run`` builds first, but the broker must run in its own network, where nothing can
        # be fetched.
        newcomer.outside("make build")
        assert (tree / ".venv" / ".core").exists()
        for page in PAGES:
            newcomer.follow((tree / page).read_text())
        newcomer.run(".venv/bin/pyrklog dev purge")
