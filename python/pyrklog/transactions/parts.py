"""What the handlers need of transactions."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.plane.core_plane import Plane
from pyrklog.transactions.marking.sender import MarkerWriter
from pyrklog.transactions.requests import TransactionCoordinator
from pyrklog.transactions.verification import TransactionVerifier


class TransactionParts(NamedTuple):
    coordinator: TransactionCoordinator
    writer: MarkerWriter
    verifier: TransactionVerifier
    plane: Plane
