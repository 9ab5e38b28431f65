"""TLS with ZooKeeper: its files, and their error messages."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError

_PROBE_SECONDS = 2.0


class TlsFiles(NamedTuple):
    ca: str | None
    certificate: str | None
    key: str | None
    key_password: str | None
    verifies_host: bool


def tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """Raises :class:`ConfigError` where a file does not fit."""
    option, file = "zookeeper.ssl.truststore.location", tls.ca
    try:
        context = ssl.create_default_context(cafile=file)
        context.check_hostname = tls.verifies_host
        if tls.certificate is not None:
            option, file = "zookeeper.ssl.keystore.location", tls.certificate
            # Without a password OpenSSL would ask on the terminal.
            context.load_cert_chain(tls.certificate, tls.key, tls.key_password or "")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(
            Problem.OPTION_VALUE, f"{option}: {file} is no PEM file that can be read: {reason}."
        ) from None
    return context


def connect_by_tls(
    address: tuple[str, int], host: str, timeout_seconds: float, tls: TlsFiles
) -> ssl.SSLSocket:
    """A connection to ``host`` at ``address``. Blocks. Raises :class:`OSError`.

    kazoo's would also trust the machine's authorities besides ``tls.ca``. Reads the files each
    time, so that certificates can be renewed.
    """
    try:
        context = tls_context(tls)
    except ConfigError as error:
        raise OSError(str(error)) from None  # the files are being replaced: tried again
    plain = socket.create_connection(address, timeout_seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def tls_failure(hosts: Sequence[tuple[str, int]], tls: TlsFiles) -> str | None:
    """Why no server speaks TLS with us; None where TLS is not the problem. Blocks."""
    for host, port in hosts:
        try:
            with connect_by_tls((host, port), host, _PROBE_SECONDS, tls) as connection:
                # With TLS 1.3 a refused certificate shows only in the first answer.
                connection.recv(1)
        except ssl.SSLError as error:
            return error.reason or str(error)
        except OSError:
            continue
    return None
