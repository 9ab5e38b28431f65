"""Links between the pages, and from code to them, lead somewhere."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.split()
FILES = [ROOT / name for name in _LISTED if (ROOT / name).is_file()]
DOCS = [path for path in FILES if path.is_relative_to(ROOT / "docs") and path.suffix == ".md"]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS]
CODE = [path for path in FILES if path.suffix in (".py", ".pyi", ".rs")]
IN_CODE = re.compile(r"(?<![\w./-])(?:docs/)?([a-z][a-z-]*\.md)\b")
"""Code names a page by its file name alone: ``cluster.md``, section 7."""
MADE_BY_BENCHES = {"table.md"}


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def links() -> list[tuple[Path, str]]:
    found = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        found += [(page, target) for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    return [(page, target) for page, target in found if not target.startswith("http")]


@pytest.mark.parametrize(
    ("page", "target"), links(), ids=lambda one: one.name if isinstance(one, Path) else one
)
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    name, _, anchor = target.partition("#")
    linked = (page.parent / name).resolve() if name else page
    assert linked.exists()
    assert not anchor or anchor in anchors(linked)


def test_no_two_pages_have_the_same_name() -> None:
    names = Counter(path.name for path in DOCS)
    assert [name for name, count in names.items() if count > 1] == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    named = set(re.findall(r"\]\(([\w/-]+\.md)\)", index))
    assert named == {path.relative_to(ROOT / "docs").as_posix() for path in DOCS} - {"README.md"}


def test_code_names_pages_that_exist_by_their_file_name() -> None:
    known = {path.name for path in DOCS} | MADE_BY_BENCHES
    bad = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in CODE
        if path != Path(__file__)
        for match in IN_CODE.finditer(path.read_text())
        if match[1] not in known or match[0].startswith("docs/")
    ]
    assert bad == []
