"""Options of security by name. No sentence about one holds a value that is secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyrklog.security import jaas
from pyrklog.security.security import CONVERT, Pem, Security

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

OPTIONS = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.token",
    "sasl.oauthbearer.callable",
    "sasl.oauthbearer.config",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
)
REFUSED = {
    "ssl.truststore.password": "a truststore of type PEM has no password",
    "ssl.keystore.password": "a keystore of type PEM has no password: use ssl.key.password",
    "sasl.kerberos.service.name": "there is no GSSAPI",
}
"""Why, by name."""

_PEM = {
    "ca": (
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
    ),
    "certificate": (
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
    ),
    "key": ("ssl.key.location", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.key"),
}


def security_of(options: Mapping[str, Any]) -> Security:
    """Of the argument ``security`` of a call. Raises ValueError with all mistakes, one a line."""
    mistakes = [
        f"{name}: {REFUSED[name]}" if name in REFUSED else f"there is no option {name} of security"
        for name in options
        if name not in OPTIONS
    ]
    parsed = parse(options, mistakes)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return parsed


def parse(options: Mapping[str, Any], mistakes: list[str]) -> Security:
    """Other names are passed over; sentences about mistakes are added."""
    given = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    protocol = _word(given, "security.protocol", PROTOCOLS, "PLAINTEXT", mistakes)
    for name in given:
        kind, _, _ = name.partition(".")
        if kind in {"ssl", "sasl"} and kind.upper() not in protocol:
            mistakes.append(f"{name} has no effect: security.protocol is {protocol}")
            break
    pems = {kind: _pem(given, kind, mistakes) for kind in _PEM}
    if (pems["certificate"] is None) != (pems["key"] is None):
        mistakes.append("a client's certificate and its key are needed together")
    for store in ("truststore", "keystore"):
        kind = str(given.get(f"ssl.{store}.type", "PEM"))
        if kind.upper() != "PEM":
            mistakes.append(f"ssl.{store}.type is {kind}: it can be PEM; {CONVERT}")
    check = _word(
        given, "ssl.endpoint.identification.algorithm", ("https", "none", ""), "https", mistakes
    )
    return Security(
        protocol=protocol,
        **(_sasl(given, mistakes) if protocol.startswith("SASL") else {}),
        ca=pems["ca"],
        certificate=pems["certificate"],
        key=pems["key"],
        key_password=given.get("ssl.key.password"),
        checks_name=check == "https",
    )


def _word(
    given: Mapping[str, Any], name: str, words: tuple[str, ...], default: str, mistakes: list[str]
) -> str:
    text = str(given.get(name, default)).strip()
    for word in words:
        if word.lower() == text.lower():
            return word
    known = " or ".join(word or "empty" for word in words)
    mistakes.append(f"{name} is {text}: it can be {known}")
    return default


def _pem(given: Mapping[str, Any], kind: str, mistakes: list[str]) -> Pem | None:
    named = [name for name in _PEM[kind] if name in given]
    if not named:
        return None
    if len(named) > 1:
        mistakes.append(f"{' and '.join(named)} are given: one of them is enough")
    name = named[0]
    value = str(given[name])
    if not name.endswith(".location"):
        return Pem(name, text=value)
    if "-----BEGIN" in value:
        text = next(one for one in _PEM[kind] if not one.endswith(".location"))
        mistakes.append(f"{name} takes a path to a PEM file; give PEM text as {text}")
        return None
    return Pem(name, file=value)


def _sasl(given: Mapping[str, Any], mistakes: list[str]) -> dict[str, Any]:
    name = "sasl.mechanism" if "sasl.mechanism" in given else "sasl.mechanisms"
    if name not in given:
        mistakes.append(f"sasl.mechanism is needed: {' or '.join(MECHANISMS)}")
        return {}
    mechanism = _word(given, name, MECHANISMS, "PLAIN", mistakes)
    if given.get("sasl.mechanisms", given[name]) != given[name]:
        mistakes.append("sasl.mechanism and sasl.mechanisms differ: one of them is enough")
    if mechanism == "OAUTHBEARER":
        sources = [one for one in ("token", "callable") if f"sasl.oauthbearer.{one}" in given]
        if len(sources) != 1:
            mistakes.append("one of sasl.oauthbearer.token and sasl.oauthbearer.callable is needed")
        return {
            "mechanism": mechanism,
            "token": given.get("sasl.oauthbearer.token"),
            "token_callable": given.get("sasl.oauthbearer.callable"),
            "token_config": given.get("sasl.oauthbearer.config", ""),
        }
    username, password = given.get("sasl.username", ""), given.get("sasl.password")
    if "sasl.jaas.config" in given:
        if username or password is not None:
            mistakes.append("sasl.jaas.config and sasl.username are given: one of them is enough")
        try:
            username, password = jaas.login(str(given["sasl.jaas.config"]), mechanism)
        except ValueError as error:
            mistakes.append(f"sasl.jaas.config: {error}")
            return {}
    if not username or password is None:
        mistakes.append(f"sasl.username and sasl.password are needed for {mechanism}")
    return {"mechanism": mechanism, "username": username, "password": password or ""}
