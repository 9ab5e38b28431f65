"""Codecs of the control APIs, driven by schemas.

A message is a class; its annotations are its field table: Python type, wire type, versions
(:mod:`.fields`). :mod:`.compiler` turns a table into a pair of closures for each version used.
:mod:`.registry` finds an API by its key and imports its module only then.

Rust reads and writes the data APIs (Produce, Fetch, ListOffsets, Metadata, ...).
"""

from pyrklog.protocol.errors import ErrorCode as ErrorCode
from pyrklog.protocol.primitives import DecodeError as DecodeError
from pyrklog.protocol.primitives import EncodeError as EncodeError
