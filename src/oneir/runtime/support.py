"""`derived_object`: the published decorator of classes that derive from a published class."""

from __future__ import annotations

from typing import TypeVar

from .error import TypeMismatch

C = TypeVar("C", bound=type)


def derived_object(cls: C) -> C:
    """A decorator of classes that override methods of a published class, such as a runner of measurements.

    Every class here is one of Python's and may be derived from, so nothing has to be done for it; `cls._cls` is what
    further classes are derived from elsewhere.
    """
    if not isinstance(cls, type):
        raise TypeMismatch(f"derived_object decorates a class, found {cls!r}")
    cls._cls = cls
    return cls
