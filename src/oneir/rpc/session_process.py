"""The server's side of one session: answers the messages of a client, in a process of its own."""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.benchmark import time_evaluator
from ..runtime.device import Device
from ..runtime.driver import find_driver
from ..runtime.dtype import dtype_name, numpy_dtype
from ..runtime.error import InvalidValue, NotRegistered, RPCError
from ..runtime.module import Module
from ..runtime.registry import get_global_func
from ..runtime.tensor import Tensor, compact_strides, empty
from ..runtime.vm import Executable, VirtualMachine
from . import wire
from .client import LocalSession
from .wire import Disconnected

HANDSHAKE_SECONDS = 10.0
"""How long a client may take to show that it knows the secret."""


def greet(connection: socket.socket, key: str, secret: str, limit: int) -> tuple[float, socket.socket | None]:
    """Asks a client for the secret and the key; returns for how many seconds it wants the session, 0 if it does not
    say, and the connection with the server that the session is to be with, if it is not this one.

    Raises `InvalidValue` for another secret or version, `RPCError` for another key, and for a server that is not
    reached, after the client was told.
    """
    wire.at_once(connection)
    connection.settimeout(HANDSHAKE_SECONDS)
    greeting = wire.greeting("server", limit)
    wire.send(connection, greeting)
    message, _ = wire.receive(connection, 0)
    try:
        wire.check_introduction(message, greeting, secret)
        if message.get("key", "") != key:
            found = message.get("key")
            raise RPCError(f"{found!r:.100} is not the key of this server; one with a tracker is found by asking that")
        timeout = message.get("timeout", 0)
        if type(timeout) not in (int, float) or not 0 <= timeout < 1e9:
            raise InvalidValue(f"expected a number of seconds, found {timeout!r:.20}")
        next_one = _next_server(message.get("through"))
    except (InvalidValue, RPCError) as error:
        wire.send(connection, {"error": wire.encode_error(error)})
        raise
    wire.send(connection, {"ok": True})
    connection.settimeout(None)
    return timeout, next_one


def _next_server(through: Any) -> socket.socket | None:
    """The connection with another server that a session is to go through to; None for a session with this one."""
    match through:
        case None | []:
            return None
        case ["rpc.Connect", str(host), int(port)]:
            try:
                return socket.create_connection((host, port), HANDSHAKE_SECONDS)
            except (OSError, OverflowError) as error:
                raise RPCError(f"nobody listens at {host:.100}:{port} ({error})") from None
    raise RPCError(f'a session is made by ["rpc.Connect", url, port, key], found {through!r:.60}')


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Hands over what each side sends, until one of them is gone."""
    with selectors.DefaultSelector() as selector:
        for source, drain in ((one, other), (other, one)):
            source.settimeout(None)
            wire.at_once(source)
            selector.register(source, selectors.EVENT_READ, (source, drain))
        while True:
            for ready, _ in selector.select():
                source, drain = ready.data
                try:
                    data = source.recv(1 << 16)
                    drain.sendall(data)
                except OSError:
                    return
                if not data:
                    return


class SessionProcess:
    """What a client may do, once it has shown the secret: each message names an operation, and gets one answer.

    Memory and objects have numbers, given out here, and are looked up; a number that is not known is an error.
    """

    def __init__(self, connection: socket.socket, limit: int):
        self._connection, self._limit = connection, limit
        self._files = LocalSession()
        self._next = 0
        self._memory: dict[int, Tensor] = {}
        self._objects: dict[int, Any] = {}
        self._operations: dict[str, Callable[[dict[str, Any], bytearray], Any]] = {
            "upload": self._upload,
            "download": self._download,
            "remove": lambda m, _: self._files.remove(_text(m, "name")),
            "listdir": lambda m, _: self._files.listdir(_text(m, "name")),
            "load": lambda m, _: self._files.load_module(_text(m, "name")),
            "system": lambda m, _: self._files.system_lib(),
            "function": lambda m, _: get_global_func(_text(m, "name")),
            "member": self._member,
            "machine": self._machine,
            "call": self._call,
            "time": self._time,
            "profile": self._profile,
            "count": lambda m, _: _count(_number(m, "type")),
            "attribute": self._attribute,
            "sync": lambda m, _: _device(m.get("device")).sync(),
            "alloc": self._alloc,
            "write": self._write,
            "read": self._read,
        }

    def run(self) -> None:
        """Answers until the client is gone; a message of which nobody knows where it ends is the last one, too."""
        while True:
            try:
                message, data = wire.receive(self._connection, self._limit)
            except Disconnected:
                return
            except InvalidValue as error:
                wire.send(self._connection, {"error": wire.encode_error(error)})
                return
            answer, out = self._answer(message, data)
            try:
                wire.send(self._connection, answer, out)
            except InvalidValue as error:
                wire.send(self._connection, {"error": wire.encode_error(error)})
            except Disconnected:
                return

    def _answer(self, message: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], bytes | bytearray]:
        try:
            for number in _numbers(message.get("released", [])):
                self._objects.pop(number, None)
                self._memory.pop(number, None)
            name = _text(message, "op")
            if name not in self._operations:
                raise InvalidValue(f"there is no operation {name!r:.40}; there are {', '.join(self._operations)}")
            result = self._operations[name](message, data)
            if name in ("download", "profile", "read"):
                if len(result) > self._limit:
                    raise InvalidValue(f"a message has at most {self._limit} bytes of data, found {len(result)}")
                return {"value": None}, result
            return {"value": wire.encode(result, self._encode)}, b""
        except Exception as error:  # whatever it was: the client is told, and may go on
            return {"error": wire.encode_error(error)}, b""

    # -- values --

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _encode(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Tensor):
            if not value.is_contiguous():
                raise InvalidValue(f"a tensor with gaps, of strides {value.strides}, cannot be sent")
            number = self._number()
            self._memory[number] = value
            place = [value.device.device_type, value.device.device_id]
            return {"tensor": {"number": number, "shape": list(value.shape), "dtype": value.dtype, "device": place}}
        if isinstance(value, Device):
            return {"device": [value.device_type, value.device_id]}
        if isinstance(value, (Module, Executable)) or callable(value):
            number = self._number()
            self._objects[number] = value
            if isinstance(value, Executable):
                return {"object": {"number": number, "kind": "executable", "names": value.vm_functions}}
            if isinstance(value, Module):
                return {"object": {"number": number, "kind": "module", "names": value.names}}
            return {"object": {"number": number, "kind": "function"}}
        return None

    def _decode(self, kind: str, content: Any) -> Any:
        match kind, content:
            case "tensor", {"number": int(number), "offset": int(offset), "shape": [*shape], "dtype": str(dtype)}:
                extents = _numbers(shape)
                strides = content.get("strides")
                return self._view(number, offset, extents, dtype, None if strides is None else _numbers(strides))
            case "device", [*_]:
                return _device(content)
            case "object", int(number):
                return self._object(number)
        raise InvalidValue(f"expected a value, found {kind!r:.40}")

    def _view(
        self, number: int, offset: int, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None
    ) -> Tensor:
        """A tensor within memory that was given out."""
        block = self._block(number)
        item = numpy_dtype(dtype_name(dtype)).itemsize
        steps = compact_strides(shape) if strides is None else strides
        if len(steps) != len(shape) or len(shape) > 32 or min((*shape, *steps), default=0) < 0:
            raise InvalidValue(f"expected a shape and its strides, found {shape} and {steps}")
        end = offset + (0 if 0 in shape else item * (1 + sum((e - 1) * s for e, s in zip(shape, steps, strict=True))))
        if not 0 <= offset <= end <= block.nbytes:
            raise InvalidValue(f"a tensor of {end} bytes lies outside of its memory of {block.nbytes} bytes")
        return Tensor(
            block.address, shape, dtype, owner=block, device=block.device, strides=strides, byte_offset=offset
        )

    def _block(self, number: int) -> Tensor:
        if number not in self._memory:
            raise InvalidValue(f"there is no memory of the number {number}")
        return self._memory[number]

    def _object(self, number: int) -> Any:
        if number not in self._objects:
            raise InvalidValue(f"there is no object of the number {number}")
        return self._objects[number]

    def _arguments(self, message: dict[str, Any]) -> list[Any]:
        given = message.get("args")
        if not isinstance(given, list):
            raise InvalidValue("expected arguments in a list")
        return [wire.decode(value, self._decode) for value in given]

    # -- operations --

    def _upload(self, message: dict[str, Any], data: bytearray) -> None:
        self._files.upload(data, _text(message, "name"))

    def _download(self, message: dict[str, Any], _: bytearray) -> bytearray:
        return self._files.download(_text(message, "name"))

    def _member(self, message: dict[str, Any], _: bytearray) -> Any:
        owner, name = self._object(_number(message, "object")), _text(message, "name")
        if not isinstance(owner, (Module, Executable, VirtualMachine)):
            raise NotRegistered(f"a function has no function {name!r}")
        return owner[name]

    def _machine(self, message: dict[str, Any], _: bytearray) -> int:
        executable = self._object(_number(message, "object"))
        if not isinstance(executable, Executable):
            raise InvalidValue("expected an executable")
        devices = message.get("devices")
        if not isinstance(devices, list):
            raise InvalidValue("expected devices in a list")
        profile = message.get("profile") is True
        number = self._number()
        self._objects[number] = VirtualMachine(executable, [_device(one) for one in devices], profile=profile)
        return number

    def _call(self, message: dict[str, Any], _: bytearray) -> Any:
        return self._object(_number(message, "object"))(*self._arguments(message))

    def _time(self, message: dict[str, Any], _: bytearray) -> list[float]:
        options = message.get("options")
        if not isinstance(options, dict) or not all(
            isinstance(name, str) and type(value) in (int, str) for name, value in options.items()
        ):
            raise InvalidValue("expected options of a time evaluator")
        function = self._object(_number(message, "object"))
        evaluate = time_evaluator(function, **options, device=_device(message.get("device")))
        return list(evaluate(*self._arguments(message)).results)

    def _profile(self, message: dict[str, Any], _: bytearray) -> bytes:
        machine = self._object(_number(message, "object"))
        if not isinstance(machine, VirtualMachine):
            raise InvalidValue("expected a machine")
        return machine.profile(_text(message, "name"), *self._arguments(message)).json().encode()

    def _attribute(self, message: dict[str, Any], _: bytearray) -> Any:
        driver = find_driver(_number(message, "type"))
        return None if driver is None else driver.attribute(_number(message, "id"), _text(message, "name"))

    def _alloc(self, message: dict[str, Any], _: bytearray) -> int:
        number = self._number()
        self._memory[number] = empty((_number(message, "bytes"),), "uint8", _device(message.get("device")))
        return number

    def _bytes(self, message: dict[str, Any], size: int) -> Tensor:
        return self._view(_number(message, "number"), _number(message, "offset"), (size,), "uint8", None)

    def _write(self, message: dict[str, Any], data: bytearray) -> None:
        self._bytes(message, len(data)).copyfrom(np.frombuffer(data, np.uint8))

    def _read(self, message: dict[str, Any], _: bytearray) -> bytes:
        return self._bytes(message, _number(message, "bytes")).numpy().tobytes()


def _text(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise InvalidValue(f"expected a text as {name}, found {value!r:.40}")
    return value


def _number(message: dict[str, Any], name: str) -> int:
    value = message.get(name)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise InvalidValue(f"expected a number from 0 on as {name}, found {value!r:.40}")
    return value


def _numbers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 1 << 62 for value in values):
        raise InvalidValue(f"expected numbers from 0 on, found {values!r:.40}")
    return tuple(values)


def _device(value: Any) -> Device:
    numbers = _numbers(value)
    if len(numbers) != 2:
        raise InvalidValue(f"expected the type and the number of a device, found {value!r:.40}")
    return Device(*numbers)


def _count(device_type: int) -> int:
    """How many devices of a type there are."""
    if device_type == 1:
        return 1
    driver = find_driver(device_type)
    return 0 if driver is None else driver.count()


def serve(connection: socket.socket, timeout: float, next_one: socket.socket | None, limit: int) -> None:
    """Serves a client that `greet` let in, until it is gone or its time is over; what it then still runs ends with this
    process.
    """
    if timeout:
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, timeout)
    if next_one is not None:
        _relay(connection, next_one)
        return
    SessionProcess(connection, limit).run()
