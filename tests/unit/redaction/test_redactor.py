"""Secrets in each kind of document, under each kind of name, and in each form."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrklog.config.properties import PropertiesError, parse_properties
from pyrklog.redaction import HIDDEN, Kind, Redactor, hides

SECRET = "Zq7-pl&nted s€cret/42"
"""With what each encoding writes otherwise."""
PLAIN = "plantedSecret42"
KEY = (
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIBplantedA==\nMIIBplantedB==\n"
    "-----END ENCRYPTED PRIVATE KEY-----"
)


def parse(text: str) -> list[tuple[str, str]]:
    try:
        return [(one.key, one.value) for one in parse_properties(text)]
    except PropertiesError as error:
        raise ValueError(str(error)) from None


def redactor(*shown: str) -> Redactor:
    return Redactor(lambda name: name in shown, parse)


def redacted(text: str, kind: Kind = Kind.TEXT) -> str:
    return redactor().redacted(text, kind)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ssl.keystore.password",
            "sasl.jaas.config",
            "sasl.password",
            "listener.name.x.ssl.key.pem",
        ),
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PGPASSWORD", "apiKey", "X-Api-Key", "dbPasswd"),
        *("basic.auth.user.info", "pyrklog.zookeeper.digest", "oauthbearer.config", "clientSecret"),
        *("connection.string", "DATABASE_URL", "Authorization", "Set-Cookie", "stored_key", "dsn"),
        *("ssl.keystore.key", "AccountKey", "SharedAccessKey", "salt", "password" + "x" * 2000),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert hides(name, "value")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("topic", "t"), ("bootstrap.servers", "h:1"), ("key", "k"), ("compass", "north")),
        *(("password.encoder.iterations", "4096"), ("token.max.lifetime.ms", 7), ("digest", "a")),
        *(
            ("password_file", "/run/secrets/db"),
            ("token_enabled", "true"),
            ("monkey", "x"),
            ("PWD", "/d"),
        ),
    ],
)
def test_names_that_are_none(name: str, value: object) -> None:
    assert not hides(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("password_file", "hunter"), ("secret.max", "a1"), ("token_enabled", "maybe")],
)
def test_a_last_word_does_not_excuse_another_value(name: str, value: str) -> None:
    assert hides(name, value)


# --- documents -----------------------------------------------------------------------------------

DOCUMENTS = {
    "properties": (Kind.PROPERTIES, f"a=b\nssl.key.password = {PLAIN}\nc d\n"),
    "properties, by a blank": (Kind.PROPERTIES, f"ssl.key.password {PLAIN}\n"),
    "properties, over lines": (Kind.PROPERTIES, f"sasl.jaas.config=x \\\n  password={PLAIN};\n"),
    "properties, escaped name": (Kind.PROPERTIES, f"ssl.key.pass\\u0077ord={PLAIN}\n"),
    "properties, a comment": (Kind.PROPERTIES, f"# old ssl.key.password={PLAIN}\na=b\n"),
    "properties, broken": (Kind.PROPERTIES, f"a=\\u12\nssl.key.password={PLAIN}\n"),
    "options, of a plug-in": (Kind.OPTIONS, f"my.plugin.setting={PLAIN}\n"),
    "json": (Kind.JSON, json.dumps({"a": [{"sasl.password": PLAIN}]})),
    "json, below a name": (Kind.JSON, json.dumps({"secrets": {"x": [PLAIN]}})),
    "json, a named value": (Kind.JSON, json.dumps([{"name": "ssl.key.password", "value": PLAIN}])),
    "json, told to be one": (
        Kind.JSON,
        json.dumps([{"name": "x", "is_sensitive": True, "value": PLAIN}]),
    ),
    "json, arguments": (Kind.JSON, json.dumps({"argv": ["--password", PLAIN]})),
    "json, a pair": (Kind.JSON, json.dumps([["sasl.password", PLAIN]])),
    "json, within a text": (Kind.JSON, json.dumps({"body": json.dumps({"password": PLAIN})})),
    "json, cut off": (Kind.JSON, f'{{"password": {{"a": "}}", "b": "{PLAIN}"'),
    "json, a name with a secret": (Kind.JSON, json.dumps({f"password={PLAIN}": 1})),
    "toml": (Kind.TOML, f'[profiles.a.properties]\n"sasl.password" = "{PLAIN}"\n'),
    "toml, a table": (Kind.TOML, f'[db.credentials]\nvalue = "{PLAIN}"\n'),
    "toml, broken": (Kind.TOML, f'password = """\n{PLAIN}\n"""\nbroken =\n'),
    "yaml": (Kind.TEXT, f"db:\n  password: {PLAIN}\n  host: h\n"),
    "yaml, quoted over lines": (Kind.TEXT, f'db:\n  password: "\n    {PLAIN}"\n'),
    "yaml, a block": (Kind.TEXT, f"password: |-\n  first\n  {PLAIN}\nhost: h\n"),
    "yaml, folded": (Kind.TEXT, f"password: some\n  {PLAIN}\nhost: h\n"),
    "yaml, a list": (Kind.TEXT, f"secrets:\n- a\n- {PLAIN}\nhost: h\n"),
    "yaml, a named value": (Kind.TEXT, f"- name: DB_PASSWORD\n  value: {PLAIN}\n"),
    "yaml, a named value, behind others": (
        Kind.TEXT,
        f"env:\n  - option: 'sasl.password'\n    type: text\n\n    value: {PLAIN}\n",
    ),
    "yaml, a value before its name": (Kind.TEXT, f"- value: {PLAIN}\n  name: DB_PASSWORD\n"),
    "yaml, a named value in braces": (Kind.TEXT, f"- {{name: DB_PASSWORD, value: {PLAIN}}}\n"),
    "yaml, a named block": (Kind.TEXT, f"- name: DB_PASSWORD\n  value: |\n    {PLAIN}\n"),
    "yaml, of Kubernetes": (Kind.TEXT, f"kind: Secret\ndata:\n  db: {PLAIN}\n"),
    "toml, as text": (Kind.TEXT, f'[a]\nb = 1\n\n[secrets]\ndb = "{PLAIN}"\n[c]\nd = 1\n'),
    "toml, as text, a quoted name": (Kind.TEXT, f'[[x.credentials]]\n"my db" = "{PLAIN}"\n'),
    "ini": (Kind.TEXT, f"[token]\r\nvalue: {PLAIN}\r\n"),
    "json, named otherwise": (Kind.JSON, json.dumps({"option": "sasl.password", "value": PLAIN})),
    "json, cut off, named": (
        Kind.JSON,
        f'[{{"config": "sasl.password",\n  "old": null, "new_value": "{PLAIN}"',
    ),
    "log, json of an option": (
        Kind.LOG,
        json.dumps({"event": "x", "option": "sasl.password", "value": PLAIN}) + "\n",
    ),
    "log, an option and its value": (Kind.LOG, f"altered option=sasl.password value={PLAIN}\n"),
    "log, json of an option within a text": (
        Kind.LOG,
        f'told {{"option": "sasl.password", "value": "{PLAIN}"}}\n',
    ),
    "yaml, in braces": (Kind.TEXT, f"db: {{user: u, password: {PLAIN}}}\n"),
    "jaas": (Kind.TEXT, f'KafkaServer {{\n  x required\n  user_alice="{PLAIN}";\n}};\n'),
    "netrc": (Kind.TEXT, f"machine h\n  password {PLAIN}\n"),
    "shell": (Kind.TEXT, f"export SASL_PASSWORD='{PLAIN}'\n"),
    "log, text": (Kind.LOG, f"failed password={PLAIN} topic=t\n"),
    "log, json": (Kind.LOG, json.dumps({"event": "x", "token": PLAIN}) + "\n"),
    "log, json in a field": (Kind.LOG, json.dumps({"event": f"at x://u:{PLAIN}@h"}) + "\n"),
    "log, an escaped text": (Kind.LOG, f'told "{{\\"password\\": \\"{PLAIN}\\"}}"\n'),
    "log, an option": (Kind.LOG, f"run --sasl-password {PLAIN} --topic t\n"),
    "log, an option with =": (Kind.LOG, f"run --sasl-password={PLAIN} --topic t\n"),
    "log, a system property": (Kind.LOG, f"java -Dssl.keyPassword={PLAIN} -Xmx1g X\n"),
    "log, behind its name": (Kind.LOG, f"machine h login u password {PLAIN}\n"),
    "log, a header": (Kind.LOG, f"> Authorization: Bearer {PLAIN}\n"),
    "log, said": (Kind.LOG, f"the password is '{PLAIN}'\n"),
    "log, api key": (Kind.LOG, f"API key: {PLAIN}\n"),
    "an address": (Kind.LOG, f"postgres://user:{PLAIN}@db/x\n"),
    "an address, with signs": (Kind.LOG, f"https://u:a@b/{PLAIN}@db/x?y=1\n"),
    "an address, a token": (Kind.LOG, f"https://{PLAIN}@github.com/x\n"),
    "an address, a parameter": (Kind.LOG, f"jdbc:postgresql://h/d?user=u&password={PLAIN}&a=b\n"),
    "a connection string": (Kind.LOG, f"Endpoint=sb://h/;SharedAccessKey={PLAIN};EntityPath=p\n"),
    "zookeeper's digest": (Kind.LOG, f"addauth digest admin:{PLAIN}\n"),
    "base64": (Kind.LOG, base64.b64encode(f"password={PLAIN}".encode()).decode() + "\n"),
    "an encoded parameter": (Kind.LOG, f"next=%2Fx%3Fpassword%3D{PLAIN}\n"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_no_document_keeps_a_secret(case: str) -> None:
    kind, text = DOCUMENTS[case]
    assert PLAIN in text or case == "base64"
    one = redactor()
    told = one.redacted(text, kind)
    assert PLAIN not in told
    assert PLAIN not in one.scrubbed(text), "not learned, so it would stay in another file"


NOT_LEARNED = ("properties, a comment",)
for _case in NOT_LEARNED:
    DOCUMENTS.pop(_case)


def test_comments_of_properties_are_left_out() -> None:
    assert redacted(f"# ssl.key.password={PLAIN}\na=b\n", Kind.PROPERTIES) == "a=b\n"


def test_the_rest_stays() -> None:
    log = "2026-01-01 INFO topic=orders leader=2 a: b {x=1} key=k tokens 5, a password changed\n"
    assert redacted(log, Kind.LOG) == log
    line = '{"event": "listening", "port": 9092, "host": "::", "fields": [1, null, true]}\n'
    assert redacted(line, Kind.LOG) == line
    yaml = "db:\n  password: x1\n  host: h\nport: 1\n"
    assert redacted(yaml) == f"db:\n  password: {HIDDEN}\n  host: h\nport: 1\n"
    assert redacted("u password=a1 n=2, m=3\n", Kind.LOG) == f"u password={HIDDEN} n=2, m=3\n"
    assert redacted("mail a@b.c, http://h/x\n", Kind.LOG) == "mail a@b.c, http://h/x\n"


def test_only_the_value_beside_a_secret_name_goes() -> None:
    items = [("LOG_LEVEL", "debug"), ("DB_PASSWORD", "x1"), ("HOME", "here")]
    yaml = "".join(f"- name: {name}\n  value: {value}\n" for name, value in items)
    assert redacted(yaml) == yaml.replace("x1", HIDDEN)
    flow = "".join(f"- {{name: {name}, value: {value}, a: b}}\n" for name, value in items)
    assert HIDDEN in redacted(flow)
    assert {"debug", "here"} <= set(redacted(flow).replace(",", "").split())
    nested = "kind: password\nspec:\n  value: 3\n"
    assert redacted(nested) == nested
    known = "- name: sasl.password.x\n  value: keep\n"
    assert redactor("sasl.password.x").redacted(known, Kind.TEXT) == known
    line = "event=token_refreshed value=5 topic=t\n"
    assert redacted(line, Kind.LOG) == line


def test_only_what_stands_under_a_secret_heading_goes() -> None:
    text = '[a]\nb = 1\n[secrets]\nc = x1\n# d\ne = "x2"\n[f]\ng = [1]\n'
    assert redacted(text) == text.replace("x1", HIDDEN).replace("x2", HIDDEN)


def test_options_that_are_known_stay_and_others_go() -> None:
    text = "log.dirs=/d\nsasl.enabled.mechanisms=PLAIN\nunknown=1\n"
    shown = redactor("log.dirs", "sasl.enabled.mechanisms").redacted(text, Kind.OPTIONS)
    assert shown == f"log.dirs=/d\nsasl.enabled.mechanisms=PLAIN\nunknown={HIDDEN}\n"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        KEY.replace("\n", "\\n"),
        KEY.partition("-----END")[0],
        KEY.partition("-----BEGIN ENCRYPTED PRIVATE KEY-----")[2],
        json.dumps({"x": KEY}),
        base64.b64encode(KEY.encode()).decode(),
        quote(KEY),
        quote_plus(KEY),
    ],
)
@pytest.mark.parametrize("kind", [Kind.LOG, Kind.TEXT])
def test_private_keys_go_also_in_parts(text: str, kind: Kind) -> None:
    told = redacted(f"before.\n{text}\n(after)\n", kind)
    assert "planted" not in told
    assert text not in told
    assert told.startswith("before.")
    assert told.endswith("(after)\n")


# --- other forms ---------------------------------------------------------------------------------


def forms(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "plain": secret,
        "quoted": quote(secret, safe=""),
        "quoted in small letters": quote(secret, safe="").lower() if secret.islower() else "",
        "quoted as a form": quote_plus(secret),
        "json": json.dumps(secret)[1:-1],
        "escaped": "".join(f"\\u{ord(one):04x}" for one in secret if ord(one) < 2**16),
        "hexadecimal": raw.hex(),
        "hexadecimal in capitals": raw.hex().upper(),
        **{
            f"base64 after {before} and before {after}": base64.b64encode(
                b"x" * before + raw + b"y" * after
            ).decode()
            for before in range(4)
            for after in range(4)
        },
        "base64 of addresses": base64.urlsafe_b64encode(b"user:" + raw).decode().rstrip("="),
    }


@pytest.mark.parametrize("secret", [SECRET, PLAIN, "<tag> & \"quotes\" 'n' \\x"])
def test_a_known_secret_goes_in_every_form(secret: str) -> None:
    one = redactor()
    one.redacted(json.dumps({"password": secret}), Kind.JSON)
    for name, form in forms(secret).items():
        if form:
            left = one.scrubbed(f"before [{form}] after")
            assert form not in left, name
            assert (left[:8], left[-7:]) == ("before [", "] after"), name


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8"), min_size=8, max_size=40))
def test_any_secret_goes(secret: str) -> None:
    secret = f"Pl4nted{secret}".strip()
    one = redactor()
    one.redacted(json.dumps({"sasl.password": secret}), Kind.JSON)
    for name, form in forms(secret).items():
        if form and (name != "escaped" or all(ord(sign) < 2**16 for sign in secret)):
            assert form not in one.scrubbed(f"[{form}]"), name


def test_usual_words_are_hidden_only_under_their_name() -> None:
    one = redactor()
    assert one.redacted("password=kafka\n", Kind.LOG) == f"password={HIDDEN}\n"
    assert one.scrubbed("a kafka broker, 1234 records") == "a kafka broker, 1234 records"
    one.redacted("token: expired since then\n", Kind.LOG)
    assert one.scrubbed("expired, since") == "expired, since"


def test_what_is_remembered_is_bounded() -> None:
    one = redactor()
    one.redacted("".join(f"password=secret-{n}\n" for n in range(3000)), Kind.LOG)
    assert one.count == 2000
    assert one.is_full


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for kind in Kind:
        redacted(text, kind)


@pytest.mark.parametrize(
    "hostile",
    [
        *("password=", "password: {", '"', "'", "\\", "-----BEGIN PRIVATE KEY-----", "a://b@"),
        *("-----END PRIVATE KEY-----\n", "eyJ-eyJ.", "%41", " ", "token=\t", "x:\n  ", "[", "&#1;"),
        *("--password ", "bearer ", "user_a='", "secret is '", "A", "{'a': ", "://", "digest:a:"),
    ],
)
def test_hostile_texts_end(hostile: str) -> None:
    """Time in proportion to the square of the length would be minutes."""
    text = hostile * (200_000 // len(hostile))
    one = redactor()
    for kind in (Kind.LOG, Kind.TEXT):
        one.scrubbed(one.redacted(text, kind))


def test_what_others_wrote_fills_half_of_the_memory() -> None:
    one = redactor()
    planted = "".join(f"password=secret-{n}\n" for n in range(3000))
    told = one.redacted(planted, Kind.LOG, is_by_others=True)
    assert "secret-" not in told, "hidden there all the same"
    assert (one.count, one.is_full) == (1000, True)
    one.redacted(f"ssl.key.password={PLAIN}\n", Kind.PROPERTIES)
    assert PLAIN not in one.scrubbed(f"told {PLAIN} in a log")
    assert one.count == 1001


def test_a_word_that_others_chose_is_hidden_only_there() -> None:
    one = redactor()
    assert one.redacted("id pw=partition\n", Kind.LOG, is_by_others=True) == f"id pw={HIDDEN}\n"
    assert one.scrubbed("partition 3 of orders") == "partition 3 of orders"
    one.redacted("pw=partition\n", Kind.LOG)
    assert one.scrubbed("partition 3 of orders") == f"{HIDDEN} 3 of orders"
