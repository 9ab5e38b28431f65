"""Values that Kafka's own providers give (``config.providers``)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pyrklog.config.broker import BrokerConfig
from pyrklog.config.load import load_config
from pyrklog.errors import ConfigError

CLASSES = {
    "env": "EnvVarConfigProvider",
    "file": "FileConfigProvider",
    "dir": "DirectoryConfigProvider",
}
DEFINED = "config.providers = env, file,dir\n" + "".join(
    f"config.providers.{name}.class=org.apache.kafka.common.config.provider.{kind}\n"
    for name, kind in CLASSES.items()
)


def load(
    tmp_path: Path, text: str, environ: Mapping[str, str] | None = None, *overrides: str
) -> BrokerConfig:
    file = tmp_path / "server.properties"
    file.write_text(text)
    return load_config(file=file, environ=environ or {}, overrides=overrides)


def test_variables_of_the_environment(tmp_path: Path) -> None:
    environ = {"PARTITIONS": "7", "HERE": "/h", "A_B": "x"}
    lines = "num.partitions=${env:PARTITIONS}\nlog.dirs=${env:HERE}/a,${env:HERE}/${env:A_B}\n"
    config = load(tmp_path, DEFINED + lines, environ)
    assert config.integer("num.partitions") == 7
    assert config.log_dirs == [Path("/h/a"), Path("/h/x")]
    assert config.given["num.partitions"].origin == "server.properties line 5"
    assert config.notices == []


def test_values_of_a_properties_file(tmp_path: Path) -> None:
    other = tmp_path / "other.properties"
    other.write_text("a.key = rack é\nnumber:9\na\\:b=8\n")
    lines = f"broker.rack=${{file:{other}:a.key}}\nnum.partitions=${{file:{other}:number}}\n"
    config = load(tmp_path, DEFINED + lines + f"num.io.threads=${{file:{other}:a:b}}")
    assert config.string("broker.rack") == "rack é"
    assert config.integer("num.partitions") == 9
    assert config.integer("num.io.threads") == 8


def test_files_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "partitions").write_text("5\n")
    config = load(tmp_path, f"{DEFINED}num.partitions=${{dir:{tmp_path}:partitions}}")
    assert config.integer("num.partitions") == 5


def test_a_value_is_not_resolved_again_and_other_dollars_stay(tmp_path: Path) -> None:
    environ = {"NESTED": "${env:OTHER}", "OTHER": "x"}
    config = load(tmp_path, f"{DEFINED}broker.rack=$${{HOME}}${{env:NESTED}}}}", environ)
    assert config.string("broker.rack") == "$${HOME}${env:OTHER}}"


def test_providers_hold_for_other_places_too(tmp_path: Path) -> None:
    environ = {"PYRKLOG_NUM_PARTITIONS": "${env:P}", "P": "3", "Q": "4"}
    config = load(tmp_path, DEFINED, environ, "num.io.threads=${env:Q}")
    assert (config.integer("num.partitions"), config.integer("num.io.threads")) == (3, 4)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("${env:NOTHING}", "the environment has no NOTHING"),
        ("${env:/path:HOME}", "have no path"),
        ("${file:key}", "it names no path"),
        ("${file:/no/such/file:key}", "cannot read /no/such/file: No such file"),
        ("${file:HERE/server.properties:key}", "has no key"),
        ("${file:HERE/latin:key}", "cannot read"),
        ("${file:HERE/bad:key}", "hexadecimal"),
        ("${dir:HERE:missing}", "has no file missing"),
        ("${dir:HERE:../x/server.properties}", "has no file"),
        ("${dir:HERE:}", "has no file"),
        ("${vault:secret:key}", "config.providers names no provider 'vault'"),
    ],
)
def test_a_variable_without_a_value_is_an_error(tmp_path: Path, value: str, said: str) -> None:
    place = tmp_path / "x"
    place.mkdir()
    (place / "latin").write_bytes("key=é".encode("latin-1"))
    (place / "bad").write_text("key=\\uxyzz")
    lines = f"{DEFINED}broker.rack={value.replace('HERE', str(place))}"
    with pytest.raises(ConfigError) as refused:
        load(place, lines, {"HOME": "/h"})
    assert "broker.rack (server.properties line 5) has ${" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "value", ["${env:NOTHING}", "${file:/no/such/file:key}", "${vault:secret:key}"]
)
def test_a_variable_without_a_value_stays_where_it_has_no_effect(
    tmp_path: Path, value: str
) -> None:
    config = load(tmp_path, f"{DEFINED}ssl.key.password=${{env:P}}-{value}", {"P": "p"})
    assert config.given["ssl.key.password"].text == f"p-{value}"


def test_only_allowed_variables_are_read(tmp_path: Path) -> None:
    environ = {"KAFKA_RACK": "r", "HOME": "/h"}
    allowed = f"{DEFINED}config.providers.env.param.allowlist.pattern=KAFKA_.*\nbroker.rack="
    assert load(tmp_path, f"{allowed}${{env:KAFKA_RACK}}", environ).string("broker.rack") == "r"
    for name in ("HOME", "X_KAFKA_RACK"):
        with pytest.raises(ConfigError, match="does not match"):
            load(tmp_path, f"{allowed}${{env:{name}}}", environ | {"X_KAFKA_RACK": ""})
    with pytest.raises(ConfigError, match=r"allowlist.pattern \(server.* no regular expression"):
        load(tmp_path, f"{DEFINED}config.providers.env.param.allowlist.pattern=(")


@pytest.mark.parametrize("provider", ["file", "dir"])
def test_only_allowed_paths_are_read(tmp_path: Path, provider: str) -> None:
    for folder in ("in", "input"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "values").write_text("rack=r")
    (tmp_path / "in" / "rack").write_text("r")
    parameter = f"config.providers.{provider}.param.allowed.paths"
    allowed = f"{DEFINED}{parameter}={tmp_path}/in\nbroker.rack="

    def rack(path: str) -> str | None:
        place = f"{path}/values" if provider == "file" else path
        return load(tmp_path, f"{allowed}${{{provider}:{tmp_path}/{place}:rack}}").string(
            "broker.rack"
        )

    assert rack("in") == rack("input/../in") == "r"
    for path in ("input", "in/../input", "."):
        with pytest.raises(ConfigError, match="not among the allowed paths"):
            rack(path)
    for wrong, said in (("relative", "is not absolute"), ("/no/such", "does not exist")):
        with pytest.raises(ConfigError, match=rf"{parameter} .* has {wrong}, which {said}"):
            load(tmp_path, f"{DEFINED}{parameter}={wrong}")


def test_a_variable_in_a_value_that_is_replaced_needs_none(tmp_path: Path) -> None:
    """Kafka puts the options together first."""
    lines = f"{DEFINED}num.partitions=${{env:NO}}\nbroker.rack=${{env:NO}}\nbroker.rack=r\n"
    config = load(tmp_path, lines, {}, "num.partitions=3")
    assert config.integer("num.partitions") == 3
    assert config.string("broker.rack") == "r"
    with pytest.raises(ConfigError, match=r"num.partitions \(--set\) has .*: the environment has"):
        load(tmp_path, lines, {}, "num.partitions=${env:NEITHER}")


def test_another_class_is_refused(tmp_path: Path) -> None:
    lines = "config.providers=vault\nconfig.providers.vault.class=com.example.Vault\n"
    with pytest.raises(ConfigError, match=r"config.providers.vault.class \(.* line 2\) is com.ex"):
        load(tmp_path, lines)
    # Where they have no effect, texts stay.
    lines += "ssl.key.password=${vault:a:b}"
    config = load(tmp_path, f"process.roles=broker\n{lines}", {}, "config.providers=")
    assert config.given["ssl.key.password"].text == "${vault:a:b}"
    assert "config.providers.vault.class" in " ".join(config.notices)


def test_definitions_of_providers_that_are_not_listed_are_told(tmp_path: Path) -> None:
    """As the error about a class proposes, in a file that is not Kafka's."""
    lines = (
        "config.providers=vault\nconfig.providers.vault.class=com.example.Vault\n"
        "config.providers.vault.param.url=https://v\n"
    )
    config = load(tmp_path, lines, {}, "config.providers=")
    assert [notice.partition(";")[0] for notice in config.notices] == [
        f"config.providers.vault.{name} (server.properties line {line}) is of a provider that "
        "config.providers does not name with its class"
        for name, line in (("class", 2), ("param.url", 3))
    ]


def test_without_providers_a_variable_is_no_value(tmp_path: Path) -> None:
    for lines in ("num.partitions=${env:P}", "config.providers=env\nnum.partitions=${env:P}"):
        with pytest.raises(ConfigError, match="names no provider 'env' with a class"):
            load(tmp_path, lines, {"P": "1"})


def test_misspelt_definitions_are_unknown_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown option config\.providers\.env\.parm\.x"):
        load(tmp_path, f"{DEFINED}config.providers.env.parm.x=1")
