"""Server names: HOST:PORT, HOST, [IPv6]:PORT."""

LABEL_MAX = 63
"""Characters of a part of a host's name (RFC 1035)."""


def host_and_port(text: str, default_port: int) -> tuple[str, int]:
    """Raises :class:`ValueError` for invalid text. The host may be empty."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= 65535):
        raise ValueError(f"{port!r} is no port")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError("an IPv6 address stands in brackets")
    labels = host.removesuffix(".").split(".")
    if host and not all(0 < len(label) <= LABEL_MAX and label.isprintable() for label in labels):
        raise ValueError(f"{host!r} is no host")
    if any(character.isspace() or character in "/[]@?#" for character in host):
        raise ValueError(f"{host!r} is no host")
    return host, int(port)
