"""``pyrklog deploy``: prints one file, writes several, replaces none unasked."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.deploy.files import KINDS, Settings

PROGRAM = "/opt/pyrklog/bin/pyrklog"


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["deploy", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_without_a_kind_they_are_listed() -> None:
    code, out, err = invoke("-o", "json")
    assert (code, err) == (0, "")
    items = json.loads(out)["items"]
    assert [one["kind"] for one in items] == list(KINDS)
    assert items[0]["files"] == ["pyrklog.service"]


@pytest.mark.parametrize("kind", [one for one in KINDS if one != "grafana"])
def test_one_file_is_printed(kind: str) -> None:
    (text,) = KINDS[kind].files(Settings(Path(PROGRAM))).values()
    assert invoke(kind, "--program", PROGRAM) == (0, text, "")


def test_several_files_need_a_place(tmp_path: Path) -> None:
    code, out, err = invoke("grafana")
    assert (code, out) == (2, "")
    assert err == "error[PK43]: grafana is 3 files\n  fix: give --to DIR\n"
    place = tmp_path / "new" / "dashboards"
    code, out, _ = invoke("grafana", "--to", str(place))
    assert code == 0
    names = [path.name for path in place.iterdir()]
    assert sorted(names) == sorted(KINDS["grafana"].files(Settings(Path(PROGRAM))))
    assert out == "".join(f"{place / name}\n" for name in KINDS["grafana"].files(Settings(place)))


def test_a_file_of_ones_own_is_not_replaced_unasked(tmp_path: Path) -> None:
    assert invoke("alerts", "--to", str(tmp_path))[0] == 0
    path = tmp_path / "pyrklog-alerts.yml"
    shipped = path.read_text()
    assert invoke("alerts", "--to", str(tmp_path)) == (0, f"{path} is up to date\n", "")
    path.write_text("groups: []\n")
    code, out, err = invoke("alerts", "--to", str(tmp_path))
    assert (code, out) == (5, "")
    assert err.startswith(f"error[PK51]: {path} is there and differs\n  fix: ")
    assert path.read_text() == "groups: []\n"
    assert invoke("alerts", "--to", str(tmp_path), "--overwrite") == (0, f"{path}\n", "")
    assert path.read_text() == shipped


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = invoke("alerts", "--to", str(tmp_path / "file"))
    assert code == 1
    assert err.startswith(f"error[PK50]: {tmp_path / 'file'}")


def test_alerts_lead_where_the_runbooks_are() -> None:
    _, out, _ = invoke("alerts", "--runbooks", "https://wiki.example/r")
    assert '"https://wiki.example/r#pyrklogbrokerdown"' in out
    assert '"runbooks.md#pyrklogbrokerdown"' in invoke("alerts")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "deploy takes systemd, container, logrotate, prometheus, alerts, runbooks"),
        (["systemd", "--program", "pyrklog"], "--program takes an absolute path of printable"),
        (
            ["systemd", "--program", "/a\nUser=root"],
            "--program takes an absolute path of printable",
        ),
        (["systemd", "--program", "/a\udcff"], "--program takes an absolute path of printable"),
        (["alerts", "--runbooks", "https://a#b"], "--runbooks takes the address of a page"),
        (["alerts", "--runbooks", ""], "--runbooks takes the address of a page"),
    ],
)
def test_arguments_that_make_no_sense_are_told(arguments: list[str], said: str) -> None:
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error[PK41]: {said}")


def test_a_program_that_the_unit_cannot_see_is_told() -> None:
    code, out, err = invoke("systemd", "--program", "/home/me/env/bin/pyrklog")
    assert code == 0
    assert "ExecStart=/home/me/env/bin/pyrklog serve" in out
    assert err.startswith("note: the unit hides home directories")
