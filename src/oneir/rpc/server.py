"""The server: takes connections, and gives each a process of its own, so that no session can harm another one."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import signal
import socket
import stat
import threading
import time
import warnings
from collections.abc import Sequence

from ..contrib.utils import TempDirectory
from ..runtime.error import DeviceError, InvalidValue, LibraryError, OneIRError, UnsupportedError
from . import testing as testing  # registers functions for trying out
from . import wire
from .session_process import serve

MAX_SESSIONS = 16
"""How many clients may be connected at once; others are told so."""

_LOOK_SECONDS = 0.2
"""How often a server looks whether sessions have ended, and whether it is to end."""


class Server:
    """Lets clients run code on this machine: whoever knows the key, and nobody else.

    host, port: where it listens; the first free port from `port` up to `port_end` is taken, and 0 is any free one.
    key: what clients must know. Without one, only programs of this machine may connect.
    limit: the most bytes of one message.

    A session is a fork of this process, so it finds the functions that are registered here. What a client sends can
    end its own session at worst. Raises `InvalidValue` for an address that others can reach without a key,
    `DeviceError` if no port is free.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9090,
        port_end: int = 9199,
        key: str = "",
        *,
        limit: int = wire.MAX_MESSAGE,
    ):
        if not hasattr(os, "fork"):
            raise UnsupportedError("a server needs processes that fork, which this system has not")
        if not key and not _is_loopback(host):
            raise InvalidValue(
                f"whoever reaches {host} could run code here: give the server a key, or let it listen on 127.0.0.1"
            )
        self.host, self._key, self._limit = host, key, limit
        self._listener = _listener(host, port, port_end)
        self.port: int = self._listener.getsockname()[1]
        self._sessions: set[int] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self.run, name="oneir-rpc", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Takes connections until the server is told to end; runs in a thread of its own."""
        while not self._stopped.is_set():
            self._reap()
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with connection:
                if len(self._sessions) >= MAX_SESSIONS:
                    error = DeviceError(f"the server has {MAX_SESSIONS} sessions already; try again later")
                    with contextlib.suppress(OneIRError):
                        wire.send(connection, {"error": wire.encode_error(error)})
                else:
                    self._sessions.add(self._fork(connection))

    def _fork(self, connection: socket.socket) -> int:
        with warnings.catch_warnings():
            # Python warns of threads that hold locks in the child; those of OneIR are free there.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        try:
            _forget_sockets(connection.fileno())
            serve(connection, self._key, self._limit)
        finally:  # whatever was raised belongs to this session, whose client has been told or is gone
            os._exit(0)

    def _reap(self) -> None:
        for pid in list(self._sessions):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._sessions.discard(pid)

    def wait(self) -> None:
        """Returns when the server has ended."""
        while self._thread.is_alive():
            self._thread.join(1)  # so that a signal is handled meanwhile

    def terminate(self) -> None:
        """Ends the server and all sessions."""
        self._stopped.set()
        self._thread.join()
        self._listener.close()
        for pid in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while self._sessions and time.monotonic() < end:
            self._reap()
            time.sleep(0.01)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.terminate()


def _server_env(load_library: Sequence[str] = (), work_path: TempDirectory | None = None) -> TempDirectory:
    """Prepares this process for sessions with itself: loads libraries, whose symbols all code may call then.

    Returns the folder for files of sessions, a new one unless it is given. Raises `LibraryError` for a file that is no
    library.
    """
    for path in load_library:
        try:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise LibraryError(f"cannot load the library {path}: {error}") from error
    return work_path or TempDirectory()


def _forget_sockets(own: int) -> None:
    """Makes all other sockets of this fork nothing: among them may be the client's end of its own connection.

    They stay open, as the null device, since objects that know their numbers will close them.
    """
    with open(os.devnull, "rb") as nothing:
        for number in map(int, os.listdir("/dev/fd")):
            with contextlib.suppress(OSError):  # one is the listing's own, which is closed by now
                if number != own and stat.S_ISSOCK(os.fstat(number).st_mode):
                    os.dup2(nothing.fileno(), number)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listener(host: str, port: int, port_end: int) -> socket.socket:
    last: OSError | None = None
    for number in range(port, max(port_end, port + 1)) if port else (0,):
        try:
            listener = socket.create_server((host, number))
        except OSError as error:
            last = error
            continue
        listener.settimeout(_LOOK_SECONDS)
        return listener
    raise DeviceError(f"no port from {port} to {port_end} of {host} is free: {last}")
