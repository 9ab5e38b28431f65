"""ci/old_words.py finds what is no longer said, however a name is written."""

from pathlib import Path

import pytest

from ci import old_words


@pytest.mark.parametrize(
    "line",
    [
        "let gated_end = 1;",
        "fn readGatedEnd()",
        "const GATED_END: i64 = 1;",
        "/// Up to the gated end.",
        "struct FetchWork;",
        "class IsrKeepers:",
        "# Whoever asks gets it.",
    ],
)
def test_an_old_word_is_found_in_any_spelling(line: str) -> None:
    assert [number for number, _, _ in old_words.find(f"first\n{line}\n")] == [2]


@pytest.mark.parametrize(
    "line", ["delegated_end", "fetch_worker", "a network of taken, up to now", "who ever asks"]
)
def test_other_words_that_contain_one_are_left_alone(line: str) -> None:
    assert list(old_words.find(line)) == []


def test_a_tree_is_refused_for_one_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("good\nthe roster of a group\n")
    (tmp_path / "CHANGELOG.md").write_text("the roster is gone\n")
    monkeypatch.setattr("sys.argv", ["old_words.py", str(tmp_path)])
    assert old_words.main() == 1
    assert capsys.readouterr().out == 'docs/README.md:2: "roster": say "members"\n'
