"""Removes secrets from what leaves this machine. Pure; diagnostics.md says what is removed.

Wrong in one direction only: what may be a secret goes, and with it sometimes a word that is none.
"""

from pyrklog.redaction.names import HIDDEN, hides
from pyrklog.redaction.redactor import Kind, Redactor

__all__ = ["HIDDEN", "Kind", "Redactor", "hides"]
