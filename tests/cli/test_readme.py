"""The README and the quick start followed literally in a built checkout.

``tests/faults/test_fresh_clone.py`` does the same in a fresh clone.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.readme import PAGES, ROOT, Newcomer, blocks, tracked_copy

pytestmark = pytest.mark.jvm
TEXT = "\n".join((ROOT / page).read_text() for page in PAGES)


@pytest.mark.timeout(600)
def test_the_commands_of_the_first_pages_work_as_they_stand(tmp_path: Path) -> None:
    fresh = subprocess.run(["make", "-q", "build", "wheel"], cwd=ROOT, check=False).returncode == 0
    assert fresh, "the tree below is to be built already: `make build wheel` first"
    tree = tracked_copy(tmp_path / "pyrklog")
    for name in (".venv", ".cache", "dist", "target"):
        (tree / name).symlink_to(ROOT / name)
    with Newcomer(tree, tmp_path / "home") as newcomer:
        done = newcomer.follow(TEXT)
        # The most important ones are among them.
        for line in ("make run", "make wheel", "dev start", "group describe", "confluent_kafka"):
            assert any(line in one for one in done)
        newcomer.run(".venv/bin/pyrklog dev purge")


def test_every_shown_command_is_run() -> None:
    """A command outside the executed blocks would be tested only by newcomers."""
    shown = [block.text for block in blocks(TEXT) if block.language not in ("sh", "python")]
    for text in shown:
        for line in text.splitlines():
            # A command with a placeholder address is not meant literally.
            is_command = re.match(r"(\S*pyrklog|make|pip|python3?) [a-z-]", line) is not None
            assert not is_command or "zk.example" in line, line
    in_blocks = "".join(block.text for block in blocks(TEXT) if block.language == "sh")
    bare = re.findall(r"^pyrklog ", in_blocks, re.MULTILINE)
    assert not bare, "in a checkout the command is .venv/bin/pyrklog"
