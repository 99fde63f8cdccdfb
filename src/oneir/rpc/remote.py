"""The client's side of a session with another process: its files, devices, tensors, modules and functions.

remote = connect("127.0.0.1", 9090, secret="secret")
remote.upload("lib.tar")
add_one = remote.load_module("lib.tar")["add_one"]
a = oneir.nd.array(values, remote.cpu())
add_one(a, b)
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..runtime.benchmark import BenchmarkResult
from ..runtime.device import REMOTE, Device
from ..runtime.driver import Driver, KernelRecord, replace_driver
from ..runtime.dtype import numpy_dtype
from ..runtime.error import (
    DeviceError,
    InvalidValue,
    RPCError,
    RPCSessionTimeoutError,
    TypeMismatch,
    UnsupportedError,
)
from ..runtime.profiling import Report
from ..runtime.tensor import Tensor
from . import wire
from .client import RPCSession
from .wire import Disconnected

_CHUNK = 1 << 24
"""The bytes of tensors that one message has."""

_BLOCK = 1 << 36
"""Each block of remote memory has so many addresses; they begin where no process has memory of its own."""
_FIRST = 1 << 20

_MOST_RELEASED = 10_000
"""How many numbers of what is given back one message has."""

_numbers = itertools.count()
"""The numbers of sessions of this process."""


class _Remote:
    """The connection, with what is given back but not told yet."""

    def __init__(self, connection: socket.socket, limit: int, timeout: float):
        self.connection, self.limit = connection, limit
        self._end = time.monotonic() + timeout if timeout else math.inf
        self.closed = False
        self._released: deque[int] = deque()
        self._lock = threading.Lock()

    def release(self, number: int) -> None:
        """Gives memory or an object of the other side back, with the next message: tensors die in the middle of one."""
        self._released.append(number)

    def ask(self, op: str, data: bytes | bytearray | memoryview = b"", /, **fields: Any) -> tuple[Any, bytearray]:
        """Has the other side do something; returns the value, as JSON, and the data of its answer.

        Raises the error that it had, `RPCSessionTimeoutError` where the session's time was over, and `RPCError` where
        the other side cannot be reached any more.
        """
        if len(data) > self.limit:
            raise InvalidValue(f"the server takes at most {self.limit} bytes in a message, found {len(data)}")
        with self._lock:
            if self.closed:
                raise DeviceError("the session is closed")
            released = [self._released.popleft() for _ in range(min(len(self._released), _MOST_RELEASED))]
            try:
                wire.send(self.connection, {"op": op, "released": released, **fields}, data)
                answer, out = wire.receive(self.connection, max(self.limit, _CHUNK))
            except Disconnected as error:
                self.closed = True
                self.connection.close()
                if time.monotonic() > self._end - 0.1:  # as the server's clock, which begins earlier, may have it
                    raise RPCSessionTimeoutError(f"the session's time was over while it was asked to {op}") from None
                raise RPCError(
                    f"the session has ended while it was asked to {op}: {error}. "
                    "Its process was killed, or has crashed, or its time was over; connect anew"
                ) from None
            except BaseException:
                # Of an answer that is none, or was not waited for, nobody knows where it ends.
                self.closed = True
                self.connection.close()
                raise
        if "error" in answer:
            raise wire.decode_error(answer["error"])
        return answer.get("value"), out

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self.closed = True
                self.connection.close()


class _RemoteDriver(Driver):
    """Devices of one kind of another process. Addresses are numbers that stand for its memory."""

    device_type: ClassVar[int] = 0
    name: ClassVar[str] = "remote"
    requirement: ClassVar[str] = "the other side has no such device"
    not_shared: ClassVar[str] = "it lies in another process"

    def __init__(self, remote: _Remote, kind: int):
        super().__init__()
        self._remote, self._kind = remote, kind
        self._count: int | None = None

    def count(self) -> int:
        if self._count is None:
            self._count, _ = self._remote.ask("count", type=self._kind)
        return self._count or 0

    def attribute(self, device_id: int, name: str) -> Any:
        return self._remote.ask("attribute", type=self._kind, id=device_id, name=name)[0]

    def alloc(self, device_id: int, nbytes: int) -> int | None:
        if nbytes >= _BLOCK:
            return None
        number, _ = self._remote.ask("alloc", bytes=nbytes, device=[self._kind, device_id])
        return (number + _FIRST) * _BLOCK

    def free(self, device_id: int, address: int) -> None:
        self._remote.release(address // _BLOCK - _FIRST)

    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        step = min(_CHUNK, self._remote.limit)
        for start in range(0, nbytes, step):
            size = min(step, nbytes - start)
            if target >= _FIRST * _BLOCK:
                self._remote.ask("write", ctypes.string_at(source + start, size), **_place(target + start))
            else:
                _, data = self._remote.ask("read", bytes=size, **_place(source + start))
                if len(data) != size:
                    raise DeviceError(f"expected {size} bytes from the other side, found {len(data)}")
                ctypes.memmove(target + start, bytes(data), size)

    def sync(self, device_id: int, stream: int | None = None) -> None:
        self._remote.ask("sync", device=[self._kind, device_id])

    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        raise UnsupportedError("kernels for another process are launched there: upload the module, and load it there")

    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        return "nothing is launched from here"

    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        """There is nothing to give back."""


def _place(address: int) -> dict[str, int]:
    return {"number": address // _BLOCK - _FIRST, "offset": address % _BLOCK}


class _Object:
    """Something on the other side; it is given back there when it dies here."""

    def __init__(self, session: RemoteSession, number: int):
        self._session, self._number = session, number
        weakref.finalize(self, session.remote.release, number).atexit = False


class RemoteFunction(_Object):
    """A function of the other side. Its arguments are numbers, texts, and tensors that lie there."""

    def __call__(self, *args: object) -> Any:
        return self._session.call(self._number, args)


class RemoteModule(_Object):
    """A module that was loaded on the other side, whose functions run there."""

    def __init__(self, session: RemoteSession, number: int, names: Sequence[str], is_graph: bool):
        super().__init__(session, number)
        self.names, self._is_graph = list(names), is_graph

    def get_function(self, name: str, query_imports: bool = False) -> RemoteFunction:
        """The function of that name. Raises `NotRegistered` if there is none."""
        return self._session.value(self._session.remote.ask("member", object=self._number, name=name)[0])

    def __getitem__(self, name: str) -> RemoteFunction:
        return self.get_function(name)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return name in self.names

    @property
    def entry_name(self) -> str:
        """The name of the function that calling the module calls."""
        return self.names[0] if len(self.names) == 1 else "main"

    @property
    def entry_func(self) -> RemoteFunction:
        """The function that calling the module calls."""
        return self.get_function(self.entry_name)

    def __call__(self, *args: object) -> Any:
        return self.entry_func(*args)

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1, **options: int | str
    ) -> Callable[..., BenchmarkResult]:
        """A function that has one of the module's called there, and returns its times there, in seconds.

        `options` are those of `oneir.runtime.time_evaluator`; what they name is found on the other side.
        """
        function = self.get_function(func_name)
        return self._session.timing(function, dev, {"number": number, "repeat": repeat, **options})

    def virtual_machine(self, devices: Device | Sequence[Device], memory_cfg: object, profile: bool) -> RemoteMachine:
        """A machine of the other side that runs this executable; `VirtualMachine(module, device)` calls this."""
        if not self._is_graph:
            raise TypeMismatch("expected an executable of a graph, found a module of loops; call its functions")
        if memory_cfg is not None:
            raise UnsupportedError("memory_cfg: how memory is allocated on the other side cannot be chosen")
        many = [devices] if isinstance(devices, Device) else list(devices)
        places = [self._session.place(device) for device in many]
        number, _ = self._session.remote.ask("machine", object=self._number, devices=places, profile=profile)
        return RemoteMachine(self._session, number)


class RemoteMachine(_Object):
    """A virtual machine of the other side."""

    def __getitem__(self, name: str) -> RemoteFunction:
        """The function of that name. Raises `NotRegistered` if there is none."""
        return self._session.value(self._session.remote.ask("member", object=self._number, name=name)[0])

    @property
    def module(self) -> RemoteMachine:
        """The machine itself, which has its functions by name."""
        return self

    def set_input(self, func_name: str, *args: object) -> None:
        """Keeps arguments of a function for `invoke_stateful`."""
        self["set_input"](func_name, *args)

    def invoke_stateful(self, func_name: str) -> None:
        """Calls a function with the arguments that `set_input` keeps; `get_outputs` has the result."""
        self["invoke_stateful"](func_name)

    def get_outputs(self, func_name: str) -> Any:
        """What the last `invoke_stateful` of a function returned."""
        return self["get_outputs"](func_name)

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1, **options: int | str
    ) -> Callable[..., BenchmarkResult]:
        """As `RemoteModule.time_evaluator`."""
        return self._session.timing(self[func_name], dev, {"number": number, "repeat": repeat, **options})

    def profile(self, func_name: str, *args: object) -> Report:
        """Calls a function there, and reports how long each kernel took, as `VirtualMachine.profile` does."""
        return self._session.profile(self._number, func_name, args)


class RemoteSession(RPCSession):
    """A session with another process, of this machine or another one; made by `connect`."""

    def __init__(self, remote: _Remote):
        self.remote = remote
        self.index = next(_numbers)
        self._kinds: set[int] = set()
        self._end = weakref.finalize(self, _end, remote, self._kinds)

    def close(self) -> None:
        """Ends the session, and its process with all that is in it; so does dropping the session and its objects."""
        self._end()

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- files --

    def upload(self, data: str | bytes | bytearray, target: str | None = None) -> None:
        if isinstance(data, str):
            target = os.path.basename(data) if target is None else target
            with open(data, "rb") as file:
                data = file.read()
        if target is None:
            raise InvalidValue("bytes are uploaded under a name; pass target=")
        self.remote.ask("upload", data, name=target)

    def download(self, path: str) -> bytearray:
        return self.remote.ask("download", name=path)[1]

    def remove(self, path: str) -> None:
        self.remote.ask("remove", name=path)

    def listdir(self, path: str = ".") -> str:
        return self.remote.ask("listdir", name=path)[0]

    # -- functions --

    def get_function(self, name: str) -> Callable[..., Any]:
        return self.value(self.remote.ask("function", name=name)[0])

    def system_lib(self) -> RemoteModule:
        return self.value(self.remote.ask("system")[0])

    def load_module(self, path: str) -> RemoteModule:
        return self.value(self.remote.ask("load", name=path)[0])

    def call(self, number: int, args: Sequence[object]) -> Any:
        """The result of a function of the other side, by its number."""
        given = [wire.encode(arg, self._encode) for arg in args]
        return self.value(self.remote.ask("call", object=number, args=given)[0])

    def timing(
        self, function: RemoteFunction, dev: Device, options: dict[str, int | str]
    ) -> Callable[..., BenchmarkResult]:
        """What a module's `time_evaluator` returns."""
        place = self.place(dev)

        def evaluate(*args: object) -> BenchmarkResult:
            given = [wire.encode(arg, self._encode) for arg in args]
            value, _ = self.remote.ask("time", object=function._number, args=given, device=place, options=options)
            return BenchmarkResult(self.value(value))

        return evaluate

    def profile(self, number: int, name: str, args: Sequence[object]) -> Report:
        """What a machine's function took, by the number of the machine."""
        given = [wire.encode(arg, self._encode) for arg in args]
        _, text = self.remote.ask("profile", object=number, name=name, args=given)
        return Report.from_json(text.decode())

    # -- devices and values --

    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        kind = Device(dev_type, dev_id).device_type
        number = (self.index + 1) * REMOTE + kind
        if number not in self._kinds:
            self._kinds.add(number)
            replace_driver(number, _RemoteDriver(self.remote, kind))
        return Device(number, dev_id)

    def place(self, device: Device) -> list[int]:
        """The type and the number of one of the session's devices, as the other side has them."""
        session, kind = divmod(device.device_type, REMOTE)
        if session != self.index + 1:
            raise InvalidValue(f"expected a device of this session, such as remote.cpu(); found {device}")
        return [kind, device.device_id]

    def value(self, value: Any) -> Any:
        """A value of an answer."""
        return wire.decode(value, self._decode)

    def _encode(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.device.device_type // REMOTE != self.index + 1:
                raise TypeMismatch(
                    f"expected a tensor on a device of the session, found one on {value.device}; "
                    "copy it there: oneir.runtime.tensor(x, remote.cpu())"
                )
            strides = None if value.is_contiguous() else list(value.strides)
            described = {**_place(value.address), "shape": list(value.shape), "dtype": value.dtype, "strides": strides}
            return {"tensor": described}
        if isinstance(value, Device):
            return {"device": self.place(value)}
        if isinstance(value, _Object) and value._session is self:
            return {"object": value._number}
        return None

    def _decode(self, kind: str, content: Any) -> Any:
        match kind, content:
            case "tensor", {
                "number": int(number),
                "shape": [*shape],
                "dtype": str(dtype),
                "device": [int(device_type), int(device_id)],
            }:
                numpy_dtype(dtype)
                owner = _Object(self, number)
                device = self.device(device_type, device_id)
                return Tensor((number + _FIRST) * _BLOCK, tuple(shape), dtype, owner=owner, device=device)
            case "device", [int(device_type), int(device_id)]:
                return self.device(device_type, device_id)
            case "object", {"number": int(number), "kind": "function"}:
                return RemoteFunction(self, number)
            case "object", {"number": int(number), "kind": "module" | "executable" as what, "names": [*names]}:
                return RemoteModule(self, number, names, what == "executable")
        raise InvalidValue(f"expected a value from the other side, found {kind!r:.40}")


def _end(remote: _Remote, kinds: set[int]) -> None:
    remote.close()
    for kind in kinds:
        replace_driver(kind, None)


def connect(
    url: str,
    port: int,
    key: str = "",
    session_timeout: float = 0,
    session_constructor_args: Sequence[Any] | None = None,
    enable_logging: bool = False,
    *,
    secret: str | None = None,
) -> RemoteSession:
    """A session with the server at an address, or behind the proxy there: a process of its own, which ends with it.

    key: the name that the server has. secret: that of the server, which is not sent itself; without it, what
    ONEIR_RPC_SECRET says. session_timeout: the seconds after which the server ends the session, whatever it does; 0
    stands for none. session_constructor_args: `["rpc.Connect", url, port, key, False]` is a session with another
    server of the same secret, which that one connects to; a sixth one and more are those of the next server.
    enable_logging has no effect.

    Raises `RPCError` if nobody listens there, if the server has another key, and for other ways to make a session,
    `InvalidValue` if it has another secret.
    """
    with wire.opened(url, port, "server") as connection:
        secret, through = wire.known_secret(secret), list(session_constructor_args or ())
        place = f"{url}:{port}"
        while True:
            greeting = wire.introduce(
                connection,
                place,
                ("server", "proxy"),
                secret,
                key=key,
                timeout=session_timeout,
                through=through[:3],  # the key of the next server is for that one
            )
            if greeting["is"] == "proxy":
                continue  # the server behind it comes next
            if not through:
                break
            _, url, port, key, *more = [*through, "", False][: max(5, len(through))]
            place, through = f"{url}:{port}", more[1:]
        limit = greeting.get("limit")
        if type(limit) is not int or limit <= 0:
            raise InvalidValue(f"expected a limit of bytes, found {limit!r:.20}")
        connection.settimeout(None)
        return RemoteSession(_Remote(connection, limit, session_timeout))
