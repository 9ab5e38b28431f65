"""SaslHandshake, SaslAuthenticate on a listener without SASL."""

from tests.parity.rows import Row, Scenario, in_versions

SASL = Scenario(
    "SASL without SASL",
    [
        *in_versions(
            (0, 1),
            lambda v: Row(
                "handshake", "SaslHandshake", v, {"mechanism": "PLAIN"}, on=f"handshake-{v}"
            ),
        ),
        Row("unknown mechanism", "SaslHandshake", 1, {"mechanism": "X"}, on="x"),
        *in_versions(
            (0, 2),
            lambda v: Row("token", "SaslAuthenticate", v, {"authBytes": b"x"}, on=f"token-{v}"),
        ),
    ],
)
SCENARIOS = (SASL,)
