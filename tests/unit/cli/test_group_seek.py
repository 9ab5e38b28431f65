"""The file of offsets that ``group seek`` reads."""

from pathlib import Path

import pytest

from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.group_seek import read_file, refuse_no_target, write_file

OFFSETS = {("orders", 0): 5, ("orders", 1): 7}


@pytest.mark.parametrize(
    "heading",
    [
        "",
        "topic,partition,offset\n",
        "TOPIC,PARTITION,OFFSET\n",
        "Topic, Partition, Offset\n",
        "# exported today\n\nTOPIC,PARTITION,OFFSET\n",
    ],
)
def test_a_file_may_have_a_heading(tmp_path: Path, heading: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(heading + write_file(OFFSETS))
    assert read_file(file) == OFFSETS


@pytest.mark.parametrize("line", ["PARTITION,TOPIC,OFFSET", "orders,x,5", "orders,1"])
def test_another_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"TOPIC,PARTITION,OFFSET\n{line}\n")
    with pytest.raises(CliError, match="line 2 is not TOPIC,PARTITION,OFFSET") as refused:
        read_file(file)
    assert refused.value.code is Exit.USAGE


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("begin", "start"),
        ("begining", "start"),
        ("earlist", "start"),
        ("star", "start"),
        ("LATEST", "end"),
        ("lates", "end"),
        ("curent", "current"),
        ("-7d", "@-7d"),
        ("7d", "@-7d"),
        ("-90M", "@-90m"),
        ("2026-03-01T12:00", "@2026-03-01t12:00"),
        ("now", "@now"),
    ],
)
def test_a_word_that_is_misspelt_is_proposed(target: str, meant: str) -> None:
    with pytest.raises(CliError) as refused:
        refuse_no_target(target)
    assert refused.value.code is Exit.USAGE
    assert refused.value.fix == f"did you mean {meant}?"
    assert "no such file" not in refused.value.what


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(CliError, match=r"not 'offsets\.csv': there is no such file") as refused:
        refuse_no_target("offsets.csv")
    assert (refused.value.code, refused.value.fix) == (Exit.NOT_FOUND, None)
