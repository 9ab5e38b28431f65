"""Options of TLS and SASL: what they become, and that no sentence tells a secret."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyrklog.security import security_of

JAAS = "org.apache.kafka.common.security.{} required {};"
SCRAM = "scram.ScramLoginModule"


def sasl(**options: str) -> dict[str, str]:
    names = {"mechanism": "SCRAM-SHA-256", **options}
    return {"security.protocol": "SASL_SSL", **{f"sasl.{k}": v for k, v in names.items()}}


def test_nothing_is_plain_text() -> None:
    security = security_of({})
    assert not security.core().is_tls
    assert security.core().mechanism == ""
    assert security.librdkafka() == {}


def test_name_and_password_reach_both_clients_and_no_repr() -> None:
    security = security_of(sasl(username="alice", password="wonder"))
    core = security.core()
    assert (core.is_tls, core.mechanism) == (True, "SCRAM-SHA-256")
    assert (core.username, core.password) == ("alice", "wonder")
    assert security.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "wonder",
    }
    assert "wonder" not in f"{security!r} {core!r}"
    assert pickle.loads(pickle.dumps(security)) == security


@pytest.mark.parametrize(
    "login", ['username="a l" password="w;\\"x"', 'password = "w;\\"x"  username="a l"']
)
def test_jaas_has_name_and_password(login: str) -> None:
    security = security_of({**sasl(), "sasl.jaas.config": JAAS.format(SCRAM, login)})
    assert (security.username, security.password) == ("a l", 'w;"x')


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (JAAS.format(SCRAM, 'username="a"'), "username and password are needed"),
        (JAAS.format("plain.PlainLoginModule", 'username="a" password="hush"'), "no login module"),
        (JAAS.format(SCRAM, 'username="a" password="hush'), "it can be MODULE required"),
        ("hush", "it can be MODULE required"),
        (JAAS.format("oauthbearer.OAuthBearerLoginModule", ""), "a token comes from"),
    ],
)
def test_what_is_wrong_with_jaas_is_said_without_it(text: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake) as caught:
        security_of({**sasl(), "sasl.jaas.config": text})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"security.protocol": "TLS"}, "it can be PLAINTEXT or SSL"),
        ({"ssl.ca.location": "x"}, "has no effect: security.protocol is PLAINTEXT"),
        ({"security.protocol": "SSL", "sasl.username": "x"}, "has no effect"),
        ({"security.protocol": "SSL", "ssl.key.location": "x"}, "needed together"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "keytool -exportcert"),
        ({"security.protocol": "SSL", "ssl.keystore.type": "PKCS12"}, "openssl pkcs12"),
        ({"security.protocol": "SSL", "ssl.truststore.password": "x"}, "has no password"),
        ({"security.protocol": "SSL", "ssl.ca.locations": "x"}, "no option ssl.ca.locations"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is needed"),
        (sasl(mechanism="GSSAPI"), "SCRAM-SHA-512"),
        (sasl(mechanisms="PLAIN", username="x", password="x"), "sasl.mechanisms differ"),
        (sasl(), "sasl.username and sasl.password are needed"),
        (sasl(mechanism="OAUTHBEARER"), "sasl.oauthbearer.token"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake):
        security_of(options)


def test_a_name_that_is_given_twice_is_refused_without_its_password() -> None:
    jaas = JAAS.format(SCRAM, 'username="a" password="hush"')
    with pytest.raises(ValueError, match="one of them is enough") as caught:
        security_of({**sasl(password="hush"), "sasl.jaas.config": jaas})
    assert "hush" not in str(caught.value)


def test_a_certificate_may_be_in_one_line_as_in_properties() -> None:
    text = "-----BEGIN CERTIFICATE----- AB+/ CD== -----END CERTIFICATE-----"
    options = {"security.protocol": "SSL", "ssl.truststore.certificates": f"{text} {text}"}
    roots = security_of(options).core().roots
    assert roots is not None
    block = ["-----BEGIN CERTIFICATE-----", "AB+/", "CD==", "-----END CERTIFICATE-----"]
    assert [line.strip() for line in roots[1].splitlines() if line.strip()] == block * 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\xfe\xed\xfe\xed\0", "is a JKS store"), (b"\x30\x82", "perhaps PKCS12"), (None, "read")],
)
def test_stores_are_refused_with_how_to_convert(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    store = tmp_path / "store"
    if content is not None:
        store.write_bytes(content)
    options = {"security.protocol": "SSL", "ssl.truststore.location": str(store)}
    with pytest.raises(ValueError, match=reason):
        security_of(options).core()


def test_the_name_of_a_server_is_checked_unless_turned_off() -> None:
    name = "ssl.endpoint.identification.algorithm"
    for value, is_checked in (("https", True), ("", False), ("none", False)):
        security = security_of({"security.protocol": "SSL", name: value})
        assert security.core().checks_name is is_checked
        assert security.librdkafka()[name] == ("https" if is_checked else "none")


def test_a_callable_gives_tokens_with_what_is_left_of_their_life() -> None:
    asked: list[str] = []

    def ask(config: str) -> tuple[str, float, str, dict[str, str]]:
        asked.append(config)
        return "T", 2e10, "alice", {"a": "b"}

    options = {**sasl(mechanism="OAUTHBEARER"), "sasl.oauthbearer.config": "x"}
    tokens = security_of({**options, "sasl.oauthbearer.callable": ask}).core().token
    assert tokens is not None
    token, left_s, extensions = tokens()
    assert (token, extensions, asked) == ("T", [("a", "b")], ["x"])
    assert left_s is not None
    assert left_s > 1e9


@pytest.mark.parametrize("found", ["hush", ("alice", "hush"), (b"hush", 1.0), ("hush",)])
def test_what_a_callable_gives_wrongly_is_not_shown(found: object) -> None:
    options = {**sasl(mechanism="OAUTHBEARER"), "sasl.oauthbearer.callable": lambda _: found}
    tokens = security_of(options).core().token
    assert tokens is not None
    with pytest.raises(TypeError, match="gives no") as caught:
        tokens()
    assert "hush" not in str(caught.value)


def test_a_given_token_has_no_end() -> None:
    security = security_of(sasl(mechanism="OAUTHBEARER", **{"oauthbearer.token": "hush"}))
    tokens = security.core().token
    assert tokens is not None
    assert tokens() == ("hush", None, [])
    assert "hush" not in repr(security)
