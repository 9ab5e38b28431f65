"""JSON that is safe to show on a terminal."""

import re

_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Those that JSON does not escape: of the terminal (C1), and of the direction of text."""


def without_controls(told: str) -> str:
    """The same JSON with such characters escaped. They can stand within its texts only, so programs
    read the same."""
    if told.isascii() and "\x7f" not in told:
        return told
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", told)
