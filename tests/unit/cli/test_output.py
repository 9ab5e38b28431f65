import csv
import io
import json
from datetime import datetime
from typing import Any

import pytest

from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Column, Listing, print_rich, render
from pyrklog.cli.topic_details import url_safe

COLUMNS = (
    Column("name", "NAME"),
    Column("size", "SIZE", right=True),
    Column("isr", "ISR", wide=True),
)
ITEMS: list[dict[str, Any]] = [
    {"name": "a", "size": 5, "isr": [1, 2], "empty": [], "nested": {"x y": None}},
    {"name": 'long "name"', "size": 1234, "isr": [], "flag": True},
]
LISTING = Listing("pyrklog.test/1", COLUMNS, ITEMS, "cluster")


def test_a_table_aligns_its_columns() -> None:
    assert render(LISTING, OutputFormat.TABLE).splitlines() == [
        "NAME         SIZE",
        "a               5",
        'long "name"  1234',
    ]


def test_a_wide_table_shows_every_column() -> None:
    assert render(LISTING, OutputFormat.WIDE).splitlines()[1] == "a               5  1,2"


def test_a_narrow_terminal_shows_whole_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = tuple(Column(f"n{number}", f"N{number}", right=True) for number in range(9))
    item = {column.key: 1796022912700 for column in columns}
    monkeypatch.setenv("COLUMNS", "80")
    print_rich(Listing("pyrklog.test/1", (*COLUMNS[:1], *columns), [{"name": "long name", **item}]))
    assert capsys.readouterr().out.split().count("1796022912700") == 9


def test_json_names_kind_cluster_and_time() -> None:
    document = json.loads(render(LISTING, OutputFormat.JSON))
    assert list(document) == ["schema", "cluster_id", "at", "items"]
    assert (document["schema"], document["cluster_id"]) == ("pyrklog.test/1", "cluster")
    assert document["items"] == ITEMS
    assert datetime.fromisoformat(document["at"]).tzinfo is not None


def test_json_lines_hold_one_item_each() -> None:
    lines = render(LISTING, OutputFormat.JSONL).splitlines()
    assert [json.loads(line) for line in lines] == ITEMS


def test_csv_has_the_columns_of_the_wide_table() -> None:
    rows = list(csv.reader(io.StringIO(render(LISTING, OutputFormat.CSV))))
    assert rows == [["name", "size", "isr"], ["a", "5", "1,2"], ['long "name"', "1234", ""]]


def test_names_stand_alone() -> None:
    assert render(LISTING, OutputFormat.NAME) == 'a\nlong "name"\n'


def test_yaml_is_in_block_style_with_json_scalars() -> None:
    lines = render(LISTING, OutputFormat.YAML).splitlines()
    assert lines[0] == 'schema: "pyrklog.test/1"'
    assert lines[3:] == [
        "items:",
        '  - name: "a"',
        "    size: 5",
        "    isr:",
        "      - 1",
        "      - 2",
        "    empty: []",
        "    nested:",
        '      "x y": null',
        '  - name: "long \\"name\\""',
        "    size: 1234",
        "    isr: []",
        "    flag: true",
    ]


@pytest.mark.parametrize("output", list(OutputFormat))
def test_empty_list_is_no_error(output: OutputFormat) -> None:
    empty = Listing("pyrklog.test/1", COLUMNS, [], None)
    text = render(empty, output)
    if output is OutputFormat.JSON:
        assert json.loads(text)["items"] == []
    elif output is OutputFormat.TABLE:
        assert text == "NAME  SIZE\n"
    elif output is OutputFormat.YAML:
        assert text.endswith("items: []\n")


def test_a_topic_id_is_written_as_kafkas_tools_write_it() -> None:
    assert url_safe("ezN/0KX+Qk2AAAAAAAAAAA==") == "ezN_0KX-Qk2AAAAAAAAAAA"
