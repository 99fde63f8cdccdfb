"""What goes over a connection: messages, the proof that a client knows the secret, and values.

A message is a head of 12 bytes (how many bytes of JSON, and of data, follow; little-endian), a JSON object, and data.
A server, tracker or proxy greets with a random challenge, and a client answers with the challenge signed by the secret,
so that the secret itself is never sent. Nothing of a message is executed: values are JSON, and all others are numbers
that the server has given out before.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from typing import Any

from ..runtime import error as errors
from ..runtime.error import DeviceError, ExecutionError, InvalidValue, OneIRError, RPCError, TypeMismatch
from ..runtime.object import ShapeTuple

VERSION = 3
"""The version of the protocol; both sides must have the same one."""

MAX_HEADER = 1 << 20
"""The most bytes of the JSON of a message."""

MAX_MESSAGE = 1 << 28
"""The most bytes of data that a server takes with a message, if it is not told otherwise."""

HEAD = struct.Struct("<IQ")
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
    start = pack(message, len(data))
    try:
        connection.sendall(start)
        if len(data):
            connection.sendall(data)
    except OSError as error:
        raise Disconnected(f"the other side cannot be reached any more: {error}") from None


def pack(message: dict[str, Any], size: int = 0) -> bytes:
    """A message up to its `size` bytes of data. Raises `InvalidValue` for one that is too large."""
    header = json.dumps(message).encode()
    if len(header) > MAX_HEADER:
        raise InvalidValue(f"a message has at most {MAX_HEADER} bytes besides its data, found {len(header)}")
    return HEAD.pack(len(header), size) + header


def receive(connection: socket.socket, limit: int) -> tuple[dict[str, Any], bytearray]:
    """A message, with at most `limit` bytes of data.

    Raises `Disconnected` at the end of the connection, also within a message, `InvalidValue` for what is none.
    """
    header_size, size = sizes(_read(connection, HEAD.size), limit)
    header = _read(connection, header_size)
    data = _read(connection, size)
    return parse(header), data


def sizes(head: bytes | bytearray, limit: int) -> tuple[int, int]:
    """How many bytes of JSON and of data follow a head. Raises `InvalidValue` for more than a message has."""
    header_size, size = HEAD.unpack(head)
    if header_size > MAX_HEADER or size > limit:
        raise InvalidValue(
            f"a message has at most {MAX_HEADER} bytes of JSON and {limit} of data, found {header_size} and {size}"
        )
    return header_size, size


def parse(header: bytes | bytearray) -> dict[str, Any]:
    """The JSON object of a message. Raises `InvalidValue` for what is none."""
    try:
        message = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"a message begins with JSON: {error}") from None
    if not isinstance(message, dict):
        raise InvalidValue(f"a message begins with a JSON object, found a value of the type {type(message).__name__}")
    return message


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


# -- who may connect --

CONNECT_SECONDS = 30.0
"""How long a client waits until another process has taken the connection and answered."""


def known_secret(secret: str | None) -> str:
    """A secret, or that of the environment, which is "" where there is none."""
    return os.environ.get("ONEIR_RPC_SECRET", "") if secret is None else secret


def check_reach(what: str, host: str, secret: str) -> None:
    """Raises `InvalidValue` for an address that other machines reach, if there is no secret."""
    if not secret and not _is_loopback(host):
        raise InvalidValue(
            f"whoever reaches {host} could run code by this {what}: give it a secret (secret=, or ONEIR_RPC_SECRET in "
            "the environment), or the address 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int, port_end: int) -> socket.socket:
    """A listener at the first free port from `port` up to `port_end`; 0 is any. Raises `DeviceError` if none is."""
    last: OSError | str = "ports end at 65535"
    for number in range(port, min(max(port_end, port + 1), 1 << 16)) if port else (0,):
        try:
            return socket.create_server((host, number))
        except OSError as error:
            last = error
    raise DeviceError(f"no port from {port} to {port_end} of {host} is free: {last}")


def sign(secret: str, challenge: str) -> str:
    """What shows that one knows the secret."""
    return hmac.new(secret.encode(), challenge.encode(), hashlib.sha256).hexdigest()


def greeting(what: str, limit: int = 0) -> dict[str, Any]:
    """The first message of a server, a tracker or a proxy; `limit`: the most bytes of data that it takes at once."""
    return {"oneir-rpc": VERSION, "is": what, "challenge": secrets.token_hex(32), "limit": limit}


def check_introduction(message: dict[str, Any], greeting: dict[str, Any], secret: str) -> None:
    """Raises `InvalidValue` for a client of another version, or that does not know the secret."""
    if message.get("oneir-rpc") != VERSION:
        raise InvalidValue(f"expected a client of version {VERSION}, found {message.get('oneir-rpc')!r:.20}")
    signed = message.get("signed")
    if not isinstance(signed, str) or not secrets.compare_digest(
        signed.encode(errors="replace"), sign(secret, greeting["challenge"]).encode()
    ):
        raise InvalidValue(f"the client's secret is not that of this {greeting['is']}")


def introduce(
    connection: socket.socket, place: str, expected: tuple[str, ...], secret: str, **fields: Any
) -> dict[str, Any]:
    """The client's side: shows the secret, and sends fields with it; returns the greeting once it was let in.

    Raises `InvalidValue` for another version, or what is none of what is expected, and the error of the answer.
    """
    greeting, _ = receive(connection, 0)
    if "error" in greeting:
        raise decode_error(greeting["error"])
    if greeting.get("oneir-rpc") != VERSION:
        raise InvalidValue(f"{place} speaks version {greeting.get('oneir-rpc')!r:.20}, and this release {VERSION}")
    if greeting.get("is") not in expected:
        raise InvalidValue(f"expected a {' or '.join(expected)} at {place}, found a {greeting.get('is')!s:.20}")
    signed = sign(secret, str(greeting.get("challenge")))
    send(connection, {"oneir-rpc": VERSION, "signed": signed, **fields})
    answer, _ = receive(connection, 0)
    if "error" in answer:
        raise decode_error(answer["error"])
    return greeting


@contextlib.contextmanager
def opened(host: str, port: int, what: str) -> Iterator[socket.socket]:
    """A new connection, which is closed, and named in the error, if what is done with it at first raises one.

    Raises `RPCError` if nobody listens there.
    """
    try:
        connection = socket.create_connection((host, port), CONNECT_SECONDS)
    except (OSError, OverflowError) as error:
        raise RPCError(
            f"nobody listens at {host}:{port} ({error}); start a {what} there: oneir rpc-{what} --port {port}"
        ) from None
    try:
        at_once(connection)
        yield connection
    except OneIRError as error:
        connection.close()
        raise type(error)(f"{host}:{port} refused: {error}") from None
    except BaseException:
        connection.close()
        raise


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
