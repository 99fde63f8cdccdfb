"""The fields of a JSON body, read with the types that they should have."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from starlette.requests import Request

from ...serving.http import read_body
from .errors import APIError

T = TypeVar("T")

MAX_BODY = 32 * 2**20
"""The most bytes of a body."""

_NAMES = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", list: "an array", dict: "an object"}


class Fields:
    """A JSON object of a request. A field that is null counts as missing, as at OpenAI; unknown ones are ignored."""

    def __init__(self, values: dict[str, Any], path: str = ""):
        self.values = values
        self._path = path

    def get(self, name: str, kind: type[T]) -> T | None:
        """A field of a type, None if it is missing. An integer is a number too. Raises `APIError`."""
        value: Any = self.values.get(name)
        if value is None:
            return None
        if kind is float and type(value) is int:
            value = float(value)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        raise self.error(name, f"expected {_NAMES[kind]}, found {_shown(value)}")

    def within(self, name: str, kind: type[T], least: int, most: int | None = None) -> T | None:
        """A number of a range, None if it is missing. Raises `APIError`."""
        value: Any = self.get(name, kind)
        if value is not None and not (least <= value and (most is None or value <= most)):
            limits = f"{least} or more" if most is None else f"{least} to {most}"
            raise self.error(name, f"expected {limits}, found {_shown(self.values[name])}", code="invalid_value")
        return value

    def require(self, name: str, kind: type[T]) -> T:
        """The same for a field that must be there."""
        value = self.get(name, kind)
        if value is None:
            raise self.error(name, f"expected {_NAMES[kind]}, but it is missing", code="missing_required_parameter")
        return value

    def object(self, name: str) -> Fields:
        """An object in a field; empty if it is missing."""
        return Fields(self.get(name, dict) or {}, f"{self._path}{name}.")

    def objects(self, name: str) -> list[Fields]:
        """The objects of an array in a field; none if it is missing."""
        values = self.get(name, list) or []
        for i, value in enumerate(values):
            if not isinstance(value, dict):
                raise self.error(f"{name}[{i}]", f"expected an object, found {_shown(value)}")
        return [Fields(value, f"{self._path}{name}[{i}].") for i, value in enumerate(values)]

    def error(self, name: str, message: str, code: str = "invalid_type") -> APIError:
        """What to raise for a field."""
        path = self._path + name
        return APIError(400, f"{path}: {message}", param=path, code=code)


async def read_fields(request: Request) -> Fields:
    """The body of a request. Raises `HTTPError` for one that is too large, `APIError` for what is no JSON object."""
    body = await read_body(request, MAX_BODY)
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise APIError(400, f"the body is no JSON: {error}", code="invalid_json") from None
    if not isinstance(values, dict):
        raise APIError(400, f"the body is a JSON object; found {_shown(values)}", code="invalid_json")
    return Fields(values)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
