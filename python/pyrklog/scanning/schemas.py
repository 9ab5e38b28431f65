"""Schemas of other packages, read through Arrow's C data interface."""

from __future__ import annotations

import ctypes

CoreField = tuple[str, str, int, list["CoreField"]]
"""Format, name and flags as the interface has them; children."""

_LEVELS_MAX = 63


class _ArrowSchema(ctypes.Structure):
    """Of Arrow's C data interface."""


_ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowSchema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def core_fields(schema: object) -> list[CoreField]:
    """The fields of a schema. Raises TypeError for what has no ``__arrow_c_schema__``, ValueError
    for what is no struct of fields, or has too many levels."""
    export = getattr(schema, "__arrow_c_schema__", None)
    if export is None or isinstance(schema, type):
        raise TypeError(
            f"schema is {schema!r}; it takes a pyarrow schema, or what else has"
            ' __arrow_c_schema__, or "infer"'
        )
    # It owns what is read below.
    capsule = export()
    found = _ArrowSchema.from_address(_pointer_of(capsule, b"arrow_schema"))
    if not found.release:
        raise ValueError("the capsule of the schema was used already")
    if found.format != b"+s":
        raise ValueError(f"schema is {schema!r}; it takes one with fields")
    return _read(found, _LEVELS_MAX - 1)[3]


def _read(found: _ArrowSchema, levels: int) -> CoreField:
    name = (found.name or b"").decode()
    if levels < 0:
        raise ValueError(f"a schema has at most {_LEVELS_MAX} levels")
    if found.dictionary:
        raise ValueError(f"the field {name!r} cannot be a dictionary")
    children = [
        _read(found.children[number].contents, levels - 1) for number in range(found.n_children)
    ]
    return found.format.decode(), name, found.flags, children
