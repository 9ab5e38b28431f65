"""``pyrklog.http.listener``."""

from pathlib import Path

import pytest

from pyrklog.config.http_place import HttpPlace, http_place, wrong_with_place
from pyrklog.config.listeners import Endpoint
from pyrklog.config.load import load_config
from pyrklog.errors import ConfigError

KAFKA = [Endpoint("PLAINTEXT", "10.0.0.1", 9092), Endpoint("OTHER", "", 9093)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0.0.0.0:80", HttpPlace("0.0.0.0", 80, True)),
        (" host:0 ", HttpPlace("host", 0, True)),
        (":9192", HttpPlace("", 9192, True)),
        ("[::1]:9192", HttpPlace("::1", 9192, True)),
        ("none", None),
        ("NONE", None),
        ("", HttpPlace("127.0.0.1", 9192, False)),
        (None, HttpPlace("127.0.0.1", 9192, False)),
    ],
)
def test_places(text: str | None, place: HttpPlace | None) -> None:
    assert wrong_with_place(text) is None
    assert http_place(text, KAFKA) == place


@pytest.mark.parametrize(
    "text",
    [
        "9192",
        "host",
        "host:",
        "host:x",
        "host:65536",
        "::1:9192",
        "http://h:1",
        "h:1/x",
        "h:²",
        "a b:1",
        "[a b]:1",
        "[::1/x]:1",
        "a..b:1",
    ],
)
def test_wrong_places(text: str) -> None:
    assert wrong_with_place(text) == "must be HOST:PORT, [HOST]:PORT, none"


def test_a_kafka_port_that_any_may_be_gives_an_http_port_that_any_may_be() -> None:
    place = http_place(None, [Endpoint("PLAINTEXT", "", 0)])
    assert place == HttpPlace("127.0.0.1", 0, False)


def test_the_default_gives_way_to_listeners() -> None:
    ports = (9092, 9292, 9192)
    place = http_place(None, [Endpoint("PLAINTEXT", "", port) for port in ports])
    assert place == HttpPlace("127.0.0.1", 9392, False)


def test_the_option_is_checked_at_the_start(tmp_path: Path) -> None:
    flags = {"pyrklog.data.dir": str(tmp_path), "pyrklog.http.listener": "9192"}
    with pytest.raises(ConfigError, match=r"pyrklog\.http\.listener"):
        load_config(flags=flags)
    flags["pyrklog.http.listener"] = "[::1]:9192"
    assert str(load_config(flags=flags).http_place) == "[::1]:9192"
