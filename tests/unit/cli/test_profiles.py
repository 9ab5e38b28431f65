"""Profiles: what ``config.toml`` says, which one counts, and commands that change it."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli import colour
from pyrklog.cli.app import app
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Given, settings
from pyrklog.cli.profiles import FILE_BYTES_MAX, Profile, config_path, load, parse


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "conf" / "config.toml"
    monkeypatch.setenv("PYRKLOG_CONFIG", str(found))
    monkeypatch.delenv("PYRKLOG_BOOTSTRAP", raising=False)
    return found


@pytest.fixture
def nobody() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def invoke(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), input=stdin)
    return done.exit_code, done.stdout, done.stderr


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_the_place_of_the_file() -> None:
    assert config_path({"PYRKLOG_CONFIG": "/x/y", "XDG_CONFIG_HOME": "/z"}) == Path("/x/y")
    assert config_path({"XDG_CONFIG_HOME": "/z"}) == Path("/z/pyrklog/config.toml")
    default = Path("~/.config/pyrklog/config.toml").expanduser()
    assert config_path({}) == config_path({"XDG_CONFIG_HOME": "relative"}) == default


def test_what_a_profile_says(path: Path) -> None:
    write(
        path,
        """profile = "prod"
        [profiles.prod]
        brokers = ["a:1", "b:2"]
        colour = "never"
        read_only = true
        confirm = "name"
        properties = {"security.protocol" = "SSL", "socket.timeout.ms" = 500, "x" = true}
        [profiles.bare]
        brokers = "c:3, d:4"
        """,
    )
    found = load(os.environ)
    assert (found.chosen, found.names()) == ("prod", ["prod", "bare"])
    properties = {"security.protocol": "SSL", "socket.timeout.ms": "500", "x": "true"}
    assert found.get("prod") == Profile("prod", ("a:1", "b:2"), properties, "never", True, True)
    assert found.get("bare").bootstrap == "c:3,d:4"
    assert load({"PYRKLOG_CONFIG": "/dev/null/none"}).names() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is no TOML"),
        ("profiel = 'x'", "unknown key profiel"),
        ("profile = 5", '"profile" is a name'),
        ("profiles = 5", '"profiles" has a table'),
        ("[profiles]\na = 5", "profile a is no table"),
        ("[profiles.a]\nread_onyl = true", "unknown key read_onyl"),
        ("[profiles.a]\nread_only = 'yes'", "read_only is true or false"),
        ("[profiles.a]\nconfirm = true", 'confirm is "name"'),
        ("[profiles.a]\ncolour = 'red'", 'colour is "auto" or "always" or "never"'),
        ("[profiles.a]\nbrokers = [5]", '"brokers" is a list'),
        ("[profiles.a.properties]\nsasl.username = 'me'", "the property sasl is a table"),
        ("[profiles.a.properties]\nx = []", "the property x is no text"),
        ("[profiles.a]\nproperties = 5", '"properties" is a table'),
        ("[profiles.a.properties]\n'bootstrap.servers' = 'a'", "does not choose the brokers"),
        ("x = " + "[" * 5000, "is no TOML"),
        ("#" * (FILE_BYTES_MAX + 1), f"more than {FILE_BYTES_MAX} bytes"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_makes_no_sense_is_told(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"config\.toml") as caught:
        parse(text.encode(), tmp_path / "config.toml").get("a")
    assert said in caught.value.what
    assert caught.value.code == Exit.USAGE


def test_flags_come_before_the_environment_and_that_before_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYRKLOG_BOOTSTRAP", raising=False)
    profile = Profile("p", ("of-profile:1",), {"a": "profile", "b": "profile"})
    found = settings(Given(properties={"b": "flag"}), profile)
    assert (found.bootstrap, found.is_profiles_broker) == ("of-profile:1", True)
    assert found.properties == {"a": "profile", "b": "flag"}
    monkeypatch.setenv("PYRKLOG_BOOTSTRAP", "of-environment:1")
    assert settings(Given(), profile).bootstrap == "of-environment:1"
    assert settings(Given(profile="p"), profile).bootstrap == "of-profile:1"
    assert settings(Given(profile="p"), Profile("p")).bootstrap == "of-environment:1"
    assert settings(Given(bootstrap="flag:1", profile="p"), profile).bootstrap == "flag:1"
    monkeypatch.delenv("PYRKLOG_BOOTSTRAP")
    assert settings(Given(), Profile("p")).bootstrap == "127.0.0.1:9092"


def test_the_profile_is_that_of_the_flag_of_the_environment_or_of_the_file(
    path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = nobody.rpartition(":")[2]
    lines = [f'[profiles.{name}]\nbrokers = "{name}.invalid:{port}"\n' for name in "abc"]
    write(path, 'profile = "a"\n' + "".join(lines))
    assert "a.invalid" in invoke("topic", "list")[2]
    assert "b.invalid" in invoke("-p", "b", "topic", "list")[2]
    assert "c.invalid" in invoke("-p", "b", "topic", "list", "--profile", "c")[2]
    monkeypatch.setenv("PYRKLOG_PROFILE", "b")
    code, _, err = invoke("topic", "list")
    assert code == 3
    assert "\n  fix: start it: profile b names it; or give -b HOST:PORT, or another -p" in err
    assert "a.invalid" in invoke("-p", "a", "topic", "list")[2]
    assert nobody in invoke("topic", "list", "-b", nobody)[2]
    monkeypatch.setenv("PYRKLOG_BOOTSTRAP", nobody)
    assert nobody in invoke("topic", "list")[2]
    assert "a.invalid" in invoke("-p", "a", "topic", "list")[2]
    assert nobody in invoke("-p", "none", "topic", "list")[2]
    code, out, err = invoke("-p", "d", "topic", "list")
    assert (code, out) == (4, "")
    assert err.startswith("error[PK55]: there is no profile d in ")


def test_commands_without_a_cluster_need_no_profile(path: Path) -> None:
    write(path, 'profile = "gone"')
    assert invoke("topic", "list")[0] == 4
    assert invoke("config", "explain", "retention.ms")[0] == 0
    assert invoke("profile", "list")[0] == 0


def test_a_file_that_others_can_read_is_told_only_with_passwords(path: Path, nobody: str) -> None:
    command = ("topic", "list", "-b", nobody)
    write(path, 'profile = "a"\n[profiles.a]\nproperties = {"sasl.password" = "geheim"}')
    path.chmod(0o644)
    err = invoke(*command)[2]
    assert err.startswith(f"note: others can read {path}, which has passwords: chmod 600")
    assert "geheim" not in err
    assert "note: " not in invoke(*command, "-q")[2]
    path.chmod(0o600)
    assert "note: " not in invoke(*command)[2]
    write(path, 'profile = "a"\n[profiles.a]\nproperties = {"client.id" = "me"}')
    path.chmod(0o644)
    assert "note: " not in invoke(*command)[2]


def test_colour_is_the_profiles_unless_the_environment_says_none(
    path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    write(path, '[profiles.a]\ncolour = "always"')
    invoke("-p", "a", "topic", "list", "-b", nobody)
    assert colour.mode() == colour.ALWAYS
    monkeypatch.setenv("NO_COLOR", "1")
    assert colour.mode() == colour.NEVER
    monkeypatch.delenv("NO_COLOR")
    invoke("topic", "list", "-b", nobody)
    assert colour.mode() == colour.AUTO


def test_a_profile_is_created_used_changed_and_deleted(path: Path) -> None:
    options = ["-b", "a:1,b:2", "-X", "sasl.username=me", "--read-only", "--confirm-name"]
    assert invoke("profile", "create", "prod", *options, "--use") == (
        0,
        "prod created, and in use\n",
        "",
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load(os.environ).get("prod") == Profile(
        "prod", ("a:1", "b:2"), {"sasl.username": "me"}, read_only=True, confirm=True
    )
    assert invoke("profile", "create", "prod")[0] == 5
    assert invoke("profile", "create", "other", "-b", "c:3")[0] == 0
    assert invoke("profile", "use", "other")[:2] == (0, "other is in use\n")
    assert load(os.environ).chosen == "other"
    edits = ["--no-read-only", "-X", "x=y", "--unset", "sasl.username", "--colour", "never"]
    assert invoke("profile", "edit", "prod", *edits)[:2] == (0, "prod changed\n")
    assert load(os.environ).get("prod") == Profile(
        "prod", ("a:1", "b:2"), {"x": "y"}, "never", confirm=True
    )
    assert invoke("profile", "delete", "other", "-y")[1] == "other deleted\nno profile is in use\n"
    assert load(os.environ).names() == ["prod"]
    assert load(os.environ).chosen is None
    assert invoke("profile", "use", "none")[:2] == (0, "no profile is in use\n")


def test_comments_and_order_stay(path: Path) -> None:
    text = (
        "# mine\n\n[profiles.z]\nbrokers = ['z:1'] # one\n# before a\n\n[profiles.a]\n"
        "confirm = 'name' # careful\n\n[profiles.a.properties]\n'x' = 'y' # why\n"
    )
    write(path, text)
    assert invoke("profile", "edit", "a", "--read-only")[0] == 0
    assert path.read_text() == text.replace(
        "confirm = 'name' # careful\n", "confirm = 'name' # careful\nread_only = true\n"
    )
    assert invoke("profile", "use", "a")[0] == 0
    assert path.read_text().startswith('# mine\nprofile = "a"\n\n[profiles.z]\n')
    assert load(os.environ).get("a").read_only


def test_a_link_to_the_file_stays_one(path: Path, tmp_path: Path) -> None:
    write(tmp_path / "mine" / "config.toml", "")
    path.parent.mkdir()
    path.symlink_to(tmp_path / "mine" / "config.toml")
    assert invoke("profile", "create", "a")[0] == 0
    assert path.is_symlink()
    assert "[profiles.a]" in path.resolve().read_text()


def test_passwords_are_asked_for_and_hidden(path: Path) -> None:
    asked = ["--ask", "sasl.password", "--ask", "ssl.key.password"]
    code, out, err = invoke("profile", "create", "a", *asked, stdin="geheim\nzwei=drei\n")
    assert (code, out, err) == (0, "a created\n", "")
    properties = {"sasl.password": "geheim", "ssl.key.password": "zwei=drei"}
    assert load(os.environ).get("a").properties == properties
    for output in ("table", "json", "csv", "yaml"):
        shown = invoke("profile", "show", "a", "-o", output)[1]
        assert "geheim" not in shown
        assert "(hidden)" in shown
    assert invoke("profile", "edit", "a", "--ask", "sasl.password", stdin="")[0] == 2


def test_profiles_are_listed_with_the_one_in_use(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        path,
        'profile = "a"\n[profiles.a]\nbrokers = ["h:1"]\n[profiles.b.properties]\n'
        '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n',
    )
    assert invoke("profile", "list")[1] == (
        "NAME  IN USE  BROKERS  SECURITY        READ-ONLY  CONFIRM\n"
        "a     *       h:1      plaintext       no         no\n"
        "b                      sasl_ssl PLAIN  no         no\n"
    )
    monkeypatch.setenv("PYRKLOG_PROFILE", "b")
    items = json.loads(invoke("profile", "list", "-o", "json")[1])["items"]
    assert [(one["name"], one["in_use"]) for one in items] == [("a", False), ("b", True)]
    assert invoke("profile", "show")[1].splitlines()[1].split() == ["name", "b"]
    assert invoke("profile", "use", "a")[2] == (
        "note: PYRKLOG_PROFILE=b in the environment hides it\n"
    )


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["create", "none"], 2, "none stands for no profile"),
        (["create", ""], 2, "1 to 100 printable characters"),
        (["create", "a\nb"], 2, "1 to 100 printable characters"),
        (["create", "x" * 101], 2, "1 to 100 printable characters"),
        (["create", "b", "-b", "::1:1"], 2, "-b takes HOST:PORT"),
        (["create", "b", "-X", "bootstrap.servers=a:1"], 2, "does not choose the broker"),
        (["create", "b", "--colour", "red"], 2, "--colour takes auto, always, never"),
        (["edit", "--read-only"], 2, "which profile?"),
        (["edit", "a", "--unset", "x"], 4, "profile a has no property x"),
        (["edit", "aa", "--read-only"], 4, "did you mean a?"),
        (["use", "aa"], 4, "did you mean a?"),
        (["show"], 4, "no profile is in use"),
        (["delete", "b"], 4, "there is no profile b"),
        (["delete", "a"], 2, "give -y"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_mistakes_change_nothing(path: Path, command: list[str], code: int, said: str) -> None:
    write(path, "[profiles.a]\n")
    found, out, err = invoke("profile", *command)
    assert (found, out) == (code, "")
    assert said in err
    assert path.read_text() == "[profiles.a]\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("PYRKLOG_CONFIG", str(tmp_path / "file" / "config.toml"))
    code, _, err = invoke("profile", "create", "a")
    assert code == 1
    assert err.endswith("\n  fix: name a file with PYRKLOG_CONFIG\n")


def editor(folder: Path, script: str) -> str:
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_an_editor_changes_the_whole_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor(tmp_path, 'echo "[profiles.new]" >> "$1"'))
    assert invoke("profile", "edit")[:2] == (0, f"{path} changed\n")
    assert load(os.environ).names() == ["new"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setenv("VISUAL", editor(tmp_path, "true"))
    assert invoke("profile", "edit")[1] == f"{path} stays as it was\n"
    assert list(path.parent.iterdir()) == [path]


def test_an_edited_text_that_makes_no_sense_is_kept_beside_the_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "[profiles.a]\n")
    monkeypatch.setenv("VISUAL", editor(tmp_path, 'echo "read_onyl = true" >> "$1"'))
    code, _, err = invoke("profile", "edit")
    assert code == 2
    assert "unknown key read_onyl; the file stays as it was, and " in err
    assert path.read_text() == "[profiles.a]\n"
    [draft] = [one for one in path.parent.iterdir() if one != path]
    assert str(draft) in err
    assert draft.read_text() == "[profiles.a]\nread_onyl = true\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 3", "ended with 3; nothing was changed"), (None, "cannot run /nowhere")],
)
def test_an_editor_that_fails_changes_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, said: str
) -> None:
    write(path, "[profiles.a]\n")
    monkeypatch.setenv("VISUAL", "/nowhere" if script is None else editor(tmp_path, script))
    code, _, err = invoke("profile", "edit")
    assert code == 1
    assert said in err
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["use", "a"], "a is in use (not done)\n"),
        (["use", "none"], "no profile is in use (not done)\n"),
        (["create", "c", "--use"], "c created, and in use (not done)\n"),
        (["edit", "a", "--read-only"], "a changed (not done)\n"),
        (["delete", "a"], "a deleted (not done)\n"),
    ],
)
def test_a_dry_run_writes_nothing(path: Path, command: list[str], told: str) -> None:
    text = 'profile = "b"\n[profiles.a]\n[profiles.b]\n'
    write(path, text)
    assert invoke("profile", *command, "--dry-run")[:2] == (0, told)
    assert path.read_text() == text
    code, out, _ = invoke("profile", *command, "--dry-run", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (code, item["kind"], item["done"]) == (0, "profile", False)
    assert item["name"] == command[1]


def test_a_dry_run_makes_no_folder_and_refuses_the_same(path: Path, tmp_path: Path) -> None:
    assert invoke("profile", "create", "a", "--dry-run")[0] == 0
    assert not path.parent.exists()
    assert invoke("profile", "use", "a", "--dry-run")[0] == 4
    assert invoke("profile", "edit", "--dry-run")[0] == 2
    kaf = tmp_path / "kcat.conf"
    kaf.write_text("bootstrap.servers=h:1\n")
    code, out, err = invoke("profile", "import", "librdkafka", str(kaf), "--dry-run")
    assert (code, "kcat" in out) == (0, True)
    assert "note: nothing was written\n" in err
    assert not path.parent.exists()


def test_what_was_done_is_told_to_programs(path: Path) -> None:
    told = json.loads(invoke("profile", "create", "a", "-o", "json")[1])
    result = {"kind": "profile", "name": "a", "result": "created", "done": True}
    assert told["items"] == [result]
    assert "[profiles.a]" in path.read_text()
