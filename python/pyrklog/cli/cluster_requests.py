"""Requests to the brokers of a cluster that confluent-kafka does not offer.

Each goes out in the newest version that the broker and we know. There is no authentication or
encryption; commands refuse such settings.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self, TypeVar

from pyrklog.base.problems import Problem
from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import Settings
from pyrklog.protocol.api import Api
from pyrklog.protocol.api_versions import API_VERSIONS, ApiVersionsRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.fields import Message
from pyrklog.protocol.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyrklog.protocol.primitives import EncodeError

RETRY_PAUSE_S = 0.1
LATE_FIX = "name another broker with -b HOST:PORT, or wait longer with --timeout SECONDS"
AWAY_FIX = "see `pyrklog cluster health`, or name another broker with -b HOST:PORT"

Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)
T = TypeVar("T")
Address = tuple[str, int]


class NotServedError(CliError):
    """A broker does not know the API, or only in versions that we do not."""

    def __init__(self, api: str, where: str) -> None:
        super().__init__(Problem.NOT_SERVED, f"{where} does not serve {api}")
        self.api = api


class SilentError(TimeoutError):
    """What accepts connections there has not answered at all."""


class _Broker(NamedTuple):
    connection: BrokerConnection
    versions: dict[int, tuple[int, int]]


class ClusterRequests:
    """Connections to brokers, opened at the first request and kept until the end."""

    def __init__(self, settings: Settings, *, instead: str | None = None) -> None:
        """Raises :class:`CliError` for settings with encryption or authentication, for which
        Apache Kafka has the tool ``instead``."""
        if settings.security_protocol != "plaintext":
            raise plain_only(settings, instead)
        self._settings = settings
        self._open: dict[Address, _Broker] = {}
        self.deadline = time.monotonic() + settings.timeout_s

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Brokers, and these topics (None: all), as the first answering broker knows them.

        A topic that does not exist has an error code.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name) for name in topics]
        request = MetadataRequest(wanted)
        return self._of_any(lambda address: self._exchange(address, METADATA, request))

    def ask_any(self, api: Api[Req, Resp], request: Req) -> Resp:
        """Asks a bootstrap broker."""
        return self._of_any(lambda address: self._exchange(address, api, request))

    def ask(self, address: Address, api: Api[Req, Resp], request: Req) -> Resp:
        """Raises :class:`CliError`, for a broker without the API :class:`NotServedError`."""
        try:
            return self._exchange(address, api, request)
        except (OSError, UnicodeError) as error:
            raise self._unreached(address, error) from None

    def version(self, address: Address, api: Api[Any, Any]) -> int:
        """The newest version that both sides know. Raises like :meth:`ask`."""
        try:
            return self._version(address, api)
        except (OSError, UnicodeError) as error:
            raise self._unreached(address, error) from None

    def wait(self) -> bool:
        """Pauses before another attempt; false once the time is over."""
        if time.monotonic() > self.deadline:
            return False
        time.sleep(RETRY_PAUSE_S)
        return True

    def _of_any(self, ask: Callable[[Address], T]) -> T:
        errors: list[CliError] = []
        for address in addresses(self._settings.bootstrap):
            try:
                return ask(address)
            except (OSError, UnicodeError) as error:
                errors.append(self._unreached(address, error))
        raise errors[-1]

    def _unreached(self, address: Address, error: Exception) -> CliError:
        return unreached(address, error, self._settings.timeout_s)

    def _exchange(self, address: Address, api: Api[Req, Resp], request: Req) -> Resp:
        version = self._version(address, api)
        try:
            return self._open[address].connection.ask(api, version, request)
        except EncodeError as error:
            raise CliError(
                Problem.ARGUMENT_VALUE, f"an argument is too long or too large: {error}"
            ) from None
        except OSError:
            self._close(address)  # what comes next on it may be this answer
            raise

    def _version(self, address: Address, api: Api[Any, Any]) -> int:
        if address not in self._open:
            self._open[address] = self._connect(address)
        least, most = self._open[address].versions.get(api.key, (0, -1))
        found = min(most, api.versions[1])
        if found < max(least, api.versions[0]):
            raise NotServedError(api.name, f"the broker at {_text(address)}")
        return found

    def _connect(self, address: Address) -> _Broker:
        timeout_s = max(0.1, min(self._settings.timeout_s, self.deadline - time.monotonic()))
        connection = BrokerConnection(address, timeout_s)
        try:
            told = connection.ask(API_VERSIONS, 0, ApiVersionsRequest())
        except TimeoutError:
            connection.close()
            raise SilentError from None
        except BaseException:
            connection.close()
            raise
        versions = {one.api_key: (one.min_version, one.max_version) for one in told.api_keys}
        return _Broker(connection, versions)

    def _close(self, address: Address) -> None:
        found = self._open.pop(address, None)
        if found is not None:
            found.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for address in list(self._open):
            self._close(address)


def plain_only(settings: Settings, instead: str | None) -> CliError:
    what = f"this command cannot use security.protocol={settings.security_protocol}"
    fix = "give a PLAINTEXT listener with -b"
    if instead is not None:
        fix = f"{fix}, or use Apache Kafka's {instead}"
    why = "it speaks to brokers by itself, without TLS and SASL"
    return CliError(Problem.PLAIN_TEXT_ONLY, what, fix, why=why)


def broker_addresses(metadata: MetadataResponse) -> dict[int, Address]:
    return {one.node_id: (one.host, one.port) for one in metadata.brokers}


def error_code(code: int) -> ErrorCode:
    """Raises :class:`CliError` for a number that Kafka 3.9 does not have."""
    try:
        return ErrorCode(code)
    except ValueError:
        raise CliError(
            Problem.BROKER_REFUSED, f"a broker answers with the unknown error {code}"
        ) from None


_PROBLEMS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Problem.TOPIC_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: Problem.TRANSACTION_NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND: Problem.OPTION_NOT_FOUND,
    ErrorCode.INVALID_CONFIG: Problem.OPTION_NOT_CHANGED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Problem.NOT_AUTHORIZED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Problem.NOT_AUTHORIZED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Problem.NOT_AUTHORIZED,
    ErrorCode.REQUEST_TIMED_OUT: Problem.NO_ANSWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Problem.NO_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE: Problem.BROKER_AWAY,
}


def refused(
    about: str, code: ErrorCode, message: str | None = None, fix: str | None = None
) -> CliError:
    """A broker's error about something, with the problem that belongs to it."""
    problem = _PROBLEMS.get(code, Problem.BROKER_REFUSED)
    return CliError(problem, f"{about}: {message or code.message}", fix)


def unreached(address: Address, error: Exception, timeout_s: float) -> CliError:
    if isinstance(error, TimeoutError):
        what = f"no answer from {_text(address)} within {timeout_s:g} s"
        if isinstance(error, SilentError):
            what = f"{what}; it may be no broker"
        return CliError(Problem.NO_ANSWER, what, LATE_FIX)
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return CliError(Problem.BROKER_AWAY, f"the broker at {_text(address)}: {reason}", AWAY_FIX)


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
