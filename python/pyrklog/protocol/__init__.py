"""Codecs of the control APIs, driven by schemas.

A message is a class whose annotations are its field table: Python type, wire type, versions
(:mod:`.fields`). :mod:`.compiler` turns such a table, once for each version that is used, into a
pair of closures. :mod:`.registry` finds an API by its key and imports its module only then.

The data APIs (Produce, Fetch, ListOffsets, Metadata, ...) are read and written in Rust.
"""

from pyrklog.protocol.errors import ErrorCode as ErrorCode
from pyrklog.protocol.primitives import DecodeError as DecodeError
from pyrklog.protocol.primitives import EncodeError as EncodeError
