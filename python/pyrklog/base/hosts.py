"""Server names: HOST:PORT, HOST, [IPv6]:PORT."""

LABEL_MAX = 63
"""Characters of a part of a host's name (RFC 1035)."""
PORT_MAX = 65535
EVERYWHERE = "0.0.0.0"
"""Listens on every interface."""
_NOT_IN_HOSTS = "/[]@?#"


def host_and_port(text: str, default_port: int | None, *, port_min: int = 1) -> tuple[str, int]:
    """Without a default the port is needed. Raises :class:`ValueError` for invalid text. The host
    may be empty."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "" if default_port is None else str(default_port)
    if not (port.isascii() and port.isdecimal() and port_min <= int(port) <= PORT_MAX):
        raise ValueError(f"{port!r} is no port")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if any(character.isspace() or character in _NOT_IN_HOSTS for character in host):
        raise ValueError(f"{host!r} is no host")
    if is_bracketed:
        return host, int(port)
    if ":" in host:
        raise ValueError("an IPv6 address stands in brackets")
    labels = host.removesuffix(".").split(".")
    if host and not all(0 < len(label) <= LABEL_MAX and label.isprintable() for label in labels):
        raise ValueError(f"{host!r} is no host")
    return host, int(port)
