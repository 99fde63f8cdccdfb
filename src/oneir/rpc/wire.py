"""What goes over a connection: messages, the proof that a client knows the key, and values.

A message is a head of 12 bytes (how many bytes of JSON, and of data, follow; little-endian), a JSON object, and data.
A server greets with a random challenge, and a client answers with the challenge signed by the key, so that the key
itself is never sent. Nothing of a message is executed: values are JSON, and all others are numbers that the server has
given out before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import struct
from typing import Any

from ..runtime import error as errors
from ..runtime.error import DeviceError, ExecutionError, InvalidValue, OneIRError, TypeMismatch
from ..runtime.object import ShapeTuple

VERSION = 1
"""The version of the protocol; both sides must have the same one."""

MAX_HEADER = 1 << 20
"""The most bytes of the JSON of a message."""

MAX_MESSAGE = 1 << 28
"""The most bytes of data that a server takes with a message, if it is not told otherwise."""

_HEAD = struct.Struct("<IQ")
_MAX_DEPTH = 32
"""How deep lists may lie in lists."""


class Disconnected(DeviceError):
    """The other side has closed the connection, or it is broken.

    The server ends a session whose process dies, for instance of a kernel that writes out of bounds, and goes on with
    others: connect again. Functions and tensors of the old session are gone.
    """


def at_once(connection: socket.socket) -> None:
    """Has a message leave as soon as it is written, and not wait for the answer to the one before."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def send(connection: socket.socket, message: dict[str, Any], data: bytes | bytearray | memoryview = b"") -> None:
    """Sends a message. Raises `InvalidValue` for one that is too large, `Disconnected` if nobody takes it."""
    header = json.dumps(message).encode()
    if len(header) > MAX_HEADER:
        raise InvalidValue(f"a message has at most {MAX_HEADER} bytes besides its data, found {len(header)}")
    try:
        connection.sendall(_HEAD.pack(len(header), len(data)) + header)
        if len(data):
            connection.sendall(data)
    except OSError as error:
        raise Disconnected(f"the other side cannot be reached any more: {error}") from None


def receive(connection: socket.socket, limit: int) -> tuple[dict[str, Any], bytearray]:
    """A message, with at most `limit` bytes of data.

    Raises `Disconnected` at the end of the connection, also within a message, `InvalidValue` for what is none.
    """
    header_size, size = _HEAD.unpack(_read(connection, _HEAD.size))
    if header_size > MAX_HEADER or size > limit:
        raise InvalidValue(
            f"a message has at most {MAX_HEADER} bytes of JSON and {limit} of data, found {header_size} and {size}"
        )
    header = _read(connection, header_size)
    data = _read(connection, size)
    try:
        message = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"a message begins with JSON: {error}") from None
    if not isinstance(message, dict):
        raise InvalidValue(f"a message begins with a JSON object, found a value of the type {type(message).__name__}")
    return message, data


def _read(connection: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    view = memoryview(found)
    while view:
        try:
            count = connection.recv_into(view)
        except OSError as error:
            raise Disconnected(f"the connection is broken: {error}") from None
        if not count:
            raise Disconnected("the other side has closed the connection")
        view = view[count:]
    return found


def sign(key: str, challenge: str) -> str:
    """What shows that one knows the key."""
    return hmac.new(key.encode(), challenge.encode(), hashlib.sha256).hexdigest()


# -- values --


def encode(value: Any, special: Any, depth: int = 0) -> Any:
    """A value as JSON. `special(value)` gives that of tensors, devices and objects, and None for others.

    Raises `TypeMismatch` for what cannot be sent.
    """
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    if depth < _MAX_DEPTH and isinstance(value, (list, tuple)):
        kind = "shape" if isinstance(value, ShapeTuple) else "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(part, special, depth + 1) for part in value]}
    found = special(value)
    if found is None:
        raise TypeMismatch(
            f"expected a number, a text, bytes, None, a list of such, or a tensor, device, module or function of the "
            f"session; found {type(value).__name__}"
        )
    return found


def decode(value: Any, special: Any, depth: int = 0) -> Any:
    """The inverse of `encode`; `special(kind, content)` makes what has a kind of its own.

    Raises `InvalidValue` for what `encode` does not write.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if depth < _MAX_DEPTH and isinstance(value, dict) and len(value) == 1:
        ((kind, content),) = value.items()
        if kind == "bytes" and isinstance(content, str):
            try:
                return bytearray(base64.b64decode(content, validate=True))
            except ValueError:
                raise InvalidValue("expected bytes in base 64") from None
        if kind in ("list", "tuple", "shape") and isinstance(content, list):
            parts = [decode(part, special, depth + 1) for part in content]
            if kind == "shape" and not all(type(part) is int for part in parts):
                raise InvalidValue("expected the extents of a shape")
            return ShapeTuple(parts) if kind == "shape" else parts if kind == "list" else tuple(parts)
        return special(kind, content)
    raise InvalidValue(f"expected a value, found {value!r:.60}")


def encode_error(error: Exception) -> dict[str, str]:
    """An error as JSON."""
    return {"type": type(error).__name__, "message": str(error)}


def decode_error(value: Any) -> OneIRError:
    """The error that the other side had: one of ours as itself, another one as an `ExecutionError` with its name."""
    match value:
        case {"type": str(name), "message": str(message)}:
            kind = getattr(errors, name, None)
            if isinstance(kind, type) and issubclass(kind, OneIRError):
                return kind(message)
            return ExecutionError(f"{name}: {message}")
    return InvalidValue(f"expected an error, found {value!r:.60}")
