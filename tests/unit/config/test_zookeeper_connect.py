import pytest

from pyrklog.base.hosts import host_and_port
from pyrklog.config.load import load_config
from pyrklog.config.zookeeper_connect import parse_connect
from pyrklog.errors import ConfigError


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("a:1,b:22/chroot/deep", [("a", 1), ("b", 22)], "chroot/deep"),
        ("a,[::1]:5,[fe80::2]", [("a", 2181), ("::1", 5), ("fe80::2", 2181)], ""),
        ("localhost:2181", [("localhost", 2181)], ""),
        ("a:1, b:2/", [("a", 1), ("b", 2)], ""),
        ("zk-1.example.org.:2181/pyrklog", [("zk-1.example.org.", 2181)], "pyrklog"),
    ],
)
def test_servers_and_chroot(connect: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert parse_connect(connect) == (servers, chroot)


@pytest.mark.parametrize(
    "connect",
    [
        "foo:bar",
        "/chroot",
        "h:99999",
        "h:0",
        "h:\u0663",
        "h:2181,/x",
        "h:1/x,g:2/x",
        "h:1/x/",
        "h:1//x",
        "h:1/../x",
        "::1:5",
        "a b:5",
        "a..b:5",
        f"{'a' * 64}:5",
        "user@h:5",
    ],
)
def test_connect_string_without_a_server_is_refused(connect: str) -> None:
    for option in ("zookeeper.connect", "pyrklog.adopt.zookeeper"):
        with pytest.raises(ConfigError, match=option) as raised:
            load_config(overrides=[f"{option}={connect}"])
        assert raised.value.fix == "for example 127.0.0.1:2181/pyrklog"


def test_a_host_may_be_left_out_where_a_default_makes_sense() -> None:
    assert host_and_port(":9092", 1) == ("", 9092)
    assert host_and_port("", 9092) == ("", 9092)
