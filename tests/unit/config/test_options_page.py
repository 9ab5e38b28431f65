"""configuration.md is the table of the options that act."""

from pathlib import Path

import pytest

from pyrklog.config.broker import OPTIONS
from pyrklog.config.option import READ_ONLY, Option

PAGE = (Path(__file__).parents[3] / "docs/using/configuration.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]
ACTING = sorted(name for name, option in OPTIONS.items() if option.effective)


def expected_row(option: Option) -> str:
    default = option.format(option.default)
    shown = "" if default is None else f"`{default}`"
    changes = "start" if option.update_mode == READ_ONLY else "run time"
    if option.at_start:
        changes = "next start"
    text = option.documentation.replace("|", "\\|")
    return f"| `{option.name}` | {shown} | {changes} | {text} |"


def test_the_page_names_the_options_that_act_in_their_order() -> None:
    assert [row.split("`")[1] for row in ROWS] == ACTING


@pytest.mark.parametrize("name", ACTING)
def test_a_row_says_what_the_option_says_of_itself(name: str) -> None:
    assert expected_row(OPTIONS[name]) in ROWS
