"""Errors about keyword arguments that a function does not have."""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def hinting(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """A misspelt keyword argument is a TypeError with what was meant, or with all there are."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for name in kwargs:
            if name not in known:
                raise TypeError(f"{function.__name__}() has no argument {_hint(name, known)}")
        return function(*args, **kwargs)

    return checked


def _hint(name: str, known: Collection[str]) -> str:
    if "." in name and "security" in known:
        return f"{name!r}; options of TLS and SASL are of security={{...}}"
    near = get_close_matches(name.lower(), known, n=1)
    if near:
        return f"{name!r}; did you mean {near[0]}?"
    return f"{name!r}; it has {', '.join(known)}"
