"""The unit, the container's recipe, and the files beside them."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrklog.base.exit_codes import Exit
from pyrklog.cli.serve import parse_fast
from pyrklog.config.broker import OPTIONS
from pyrklog.config.load import environment_name, load_config
from pyrklog.deploy.files import KINDS, Settings, in_unit, is_hidden
from pyrklog.peers.peers import LEAVE_LONGEST_SECONDS
from pyrklog.start.end import SHUTDOWN_LIMIT_SECONDS
from pyrklog.start.service_manager import EXTEND_SECONDS, EXTENDED_USEC

PROGRAM = Path("/opt/pyrklog/bin/pyrklog")


def text(kind: str, program: Path = PROGRAM) -> str:
    (found,) = KINDS[kind].files(Settings(program)).values()
    return found


def unit(program: Path = PROGRAM) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, delimiters="=", comment_prefixes="#")
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(text("systemd", program))
    return found


def instructions(recipe: str) -> list[tuple[str, str]]:
    """Of a container's recipe, with continued lines put together."""
    lines = [line for line in recipe.splitlines() if line and not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (x.partition(" ") for x in whole.split("\n"))]


# --- systemd -------------------------------------------------------------------------------------


def test_systemd_itself_finds_nothing_wrong(tmp_path: Path) -> None:
    """Where there is none, the other tests have to do."""
    program = tmp_path / "pyrklog"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "pyrklog.service"
    path.write_text(text("systemd", program))
    verifier = shutil.which("systemd-analyze")
    if verifier is not None:
        done = subprocess.run(
            [verifier, "verify", str(path)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert set(unit(program)) == {"DEFAULT", "Unit", "Service", "Install"}


def test_the_command_of_the_unit_is_one_of_serve() -> None:
    program, command, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert (program, command) == (str(PROGRAM), "serve")
    options = parse_fast(arguments)
    assert options is not None
    assert options.config == "/etc/pyrklog/server.properties"
    assert options.data == f"/var/lib/{unit()['Service']['StateDirectory']}"


def test_wrong_configurations_are_not_tried_again_and_everything_else_is() -> None:
    service = unit()["Service"]
    assert service["Restart"] == "on-failure"
    given_up = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert given_up == {Exit.CONFIGURATION, Exit.USAGE}
    assert not given_up & {Exit.TEMPORARY, Exit.DISK}
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0", "a limit would end the tries"


def test_times_of_the_unit_are_longer_than_the_brokers_own() -> None:
    service = unit()["Service"]
    assert float(service["TimeoutStopSec"]) > LEAVE_LONGEST_SECONDS + SHUTDOWN_LIMIT_SECONDS
    assert service["Type"] == "notify"
    assert float(service["TimeoutStartSec"]) > 2 * EXTEND_SECONDS
    assert EXTENDED_USEC / 1e6 > 2 * EXTEND_SECONDS, "a lost message does no harm"


def test_the_unit_leaves_the_block_cache_its_memory() -> None:
    """RemoveIPC and DynamicUser delete it, ProcSubset hides how much memory there is."""
    service = unit()["Service"]
    assert service["RemoveIPC"] == "no"
    assert not {"DynamicUser", "ProcSubset", "PrivateIPC", "PrivatePIDs"} & set(service)
    assert service["User"] != "root"
    assert service["NoNewPrivileges"] == "yes"
    assert int(service["LimitNOFILE"]) >= 100_000


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/opt/a/pyrklog", "/opt/a/pyrklog"),
        ("/opt/a b/pyrklog", '"/opt/a b/pyrklog"'),
        ("/opt/100%/$x/pyrklog", "/opt/100%%/$$x/pyrklog"),
        ('/opt/"/\\/pyrklog', '"/opt/\\"/\\\\/pyrklog"'),
    ],
)
def test_a_path_is_one_word_of_the_unit(path: str, word: str) -> None:
    assert in_unit(Path(path)) == word
    assert f"ExecStart={word} serve " in text("systemd", Path(path))


@pytest.mark.parametrize(
    ("path", "hidden"),
    [("/home/me/env/bin/pyrklog", True), ("/root/env/bin/pyrklog", True), (str(PROGRAM), False)],
)
def test_programs_below_homes_are_hidden_from_the_unit(path: str, hidden: bool) -> None:
    assert is_hidden(Path(path)) is hidden


# --- container -----------------------------------------------------------------------------------


def test_the_container_runs_a_wheel_without_root() -> None:
    found = instructions(text("container"))
    stages = [rest for name, rest in found if name == "FROM"]
    assert [stage.partition(" AS ")[2] for stage in stages] == ["build", ""]
    second = found[[name for name, _ in found].index("FROM", 2) :]
    copied = [rest for name, rest in second if name == "COPY"]
    assert copied == ["--from=build /opt/pyrklog /opt/pyrklog"], "nothing else of the first stage"
    (user,) = [rest for name, rest in second if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert ("ENTRYPOINT", '["pyrklog"]') in second
    assert ("CMD", '["serve"]') in second
    assert ("STOPSIGNAL", "SIGTERM") in second


def test_the_containers_options_are_options() -> None:
    (given,) = [rest for name, rest in instructions(text("container")) if name == "ENV"]
    variables = dict(word.split("=", 1) for word in given.split())
    options = {name: one for name, one in variables.items() if name.startswith("PYRKLOG_")}
    assert set(options) <= set(map(environment_name, OPTIONS))
    config = load_config(environ=options)
    assert config.notices == []
    assert [str(one.port) for one in config.listeners.bound] == ["9092"]
    assert config.http_place is not None
    exposed = [rest.split() for name, rest in instructions(text("container")) if name == "EXPOSE"]
    assert exposed == [["9092", str(config.http_place.port)]]
    assert ("VOLUME", str(config.data_dir)) in instructions(text("container"))


def test_variables_that_the_recipe_speaks_of_are_options() -> None:
    told = set(re.findall(r"PYRKLOG_[A-Z_]+[A-Z]", text("container")))
    assert told <= set(map(environment_name, OPTIONS))
    assert environment_name("pyrklog.cache.dir") in told


# --- others --------------------------------------------------------------------------------------


def test_the_scrape_configuration_is_what_alerts_and_dashboards_expect() -> None:
    config: Any = yaml.safe_load(text("prometheus"))
    assert config["rule_files"] == list(KINDS["alerts"].files(Settings(PROGRAM)))
    (job,) = config["scrape_configs"]
    assert re.fullmatch(r"pyrklog.*", job["job_name"])
    # What is commented out is well-formed, too.
    lines = text("prometheus").splitlines()
    examples = "\n".join(line[4:] for line in lines if re.match(r"  # (- |  \w+:)", line))
    detail = yaml.safe_load(examples)
    assert [list(one["params"]) for one in detail] == [["topic"], ["group"]]
    for one in detail:
        assert one["metrics_path"] == "/metrics/detail"
        # A broker that knows neither counts as down, which must not be an alert.
        assert not one["job_name"].startswith("pyrklog")


def test_the_log_is_cut_where_it_lies() -> None:
    """The broker keeps it open."""
    found = re.search(r"^(/\S+) \{\n(.*)^\}$", text("logrotate"), re.MULTILINE | re.DOTALL)
    assert found is not None
    words = [line.split() for line in found[2].splitlines()]
    assert ["copytruncate"] in words
    assert not {"create", "postrotate"} & {word[0] for word in words}


def test_every_template_is_a_kinds() -> None:
    folder = Path(__file__).parents[3] / "python" / "pyrklog" / "deploy" / "templates"
    names = {name for kind in KINDS.values() for name in kind.files(Settings(PROGRAM))}
    assert {path.name for path in folder.iterdir()} <= names
