"""The file of offsets that ``group seek`` reads."""

from pathlib import Path

import pytest

from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.group_seek import read_file, write_file

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
