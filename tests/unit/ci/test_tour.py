import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOUR = (ROOT / "docs" / "tour.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:rust|python)/[\w/.]+?\.(?:rs|py))(?:::(\w+))?`", TOUR)))
FILES_OF_A_REQUEST_MAX = 12


@pytest.mark.parametrize(("file", "function"), NAMED)
def test_files_and_functions_of_the_tour_exist(file: str, function: str) -> None:
    source = (ROOT / file).read_text()
    assert not function or re.search(rf"\b(?:fn|def) {function}\b", source)


@pytest.mark.parametrize("request_name", ["Produce", "Fetch"])
def test_a_request_passes_few_files_of_the_data_plane(request_name: str) -> None:
    section = TOUR.split(f"\n## {request_name}\n")[1].split("\n## ")[0]
    steps = [part for part in section.split("\n\n") if re.match(r"\d+\. ", part.strip())]
    files = set(re.findall(r"`(rust/(?!log/)[\w/]+\.rs)", "".join(steps)))
    assert 8 <= len(files) <= FILES_OF_A_REQUEST_MAX, sorted(files)
