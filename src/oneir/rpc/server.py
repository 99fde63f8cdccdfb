"""The server: takes connections, and gives each a process of its own, so that no session can harm another one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import stat
import threading
import time
import warnings
from collections.abc import Callable, Sequence

from ..contrib.utils import TempDirectory
from ..runtime.error import DeviceError, LibraryError, OneIRError, UnsupportedError
from . import testing as testing  # registers functions for trying out
from . import wire
from .arrivals import Arrivals, Behind, Listener, Tracked
from .session_process import greet, serve

MAX_SESSIONS = 16
"""How many clients may be connected at once; others are told so."""

_REFUSED = 98
"""What the process of a client that got no session ends with."""


class Server:
    """Lets clients run code on this machine: whoever reaches it and knows the secret, and nobody else.

    host, port: where it listens; the first free port from `port` up to `port_end` is taken, and 0 is any free one. With
    `is_proxy` they are the address of a proxy instead, to which the server connects, and through which clients come.
    key: what clients ask for, the name of a kind of device; no secret.
    secret: what clients must know; without it, what ONEIR_RPC_SECRET says. Where there is none, only programs of this
    machine may connect.
    tracker_addr: the address of a tracker, which gives the server to one client at a time; nobody else may connect. A
    server behind a proxy is announced by the proxy, to the proxy's own tracker.
    load_library: paths of libraries that sessions have loaded; custom_addr: the host that the tracker tells clients, if
    it is not the one that it sees; server_init_callback: called in each session's process.
    limit: the most bytes of one message. silent and no_fork have no effect.

    A session is a fork of this process, so it finds the functions that are registered here. What a client sends can
    end its own session at worst. Raises `InvalidValue` for an address that others can reach without a secret,
    `DeviceError` if no port is free, `RPCError` if the tracker or proxy is not reached.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9090,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: Sequence[str] | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        server_init_callback: Callable[[], object] | None = None,
        *,
        secret: str | None = None,
        limit: int = wire.MAX_MESSAGE,
    ):
        if not hasattr(os, "fork"):
            raise UnsupportedError("a server needs processes that fork, which this system has not")
        self.host, self.key, self._limit = host, key, limit
        self._secret, self._prepare = wire.known_secret(secret), server_init_callback
        wire.check_reach("server", host, self._secret)
        _server_env(load_library or ())
        self._arrivals: Arrivals
        if is_proxy:
            self._arrivals = Behind((host, port), key, self._secret)
        elif tracker_addr is not None:
            listener = wire.listen(host, port, port_end)
            self._arrivals = Tracked(listener, key, tracker_addr, custom_addr, self._secret)
        else:
            self._arrivals = Listener(wire.listen(host, port, port_end), key)
        self.port = self._arrivals.port
        self._sessions: set[int] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self.run, name="oneir-rpc", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Takes connections until the server is told to end; runs in a thread of its own."""
        while not self._stopped.is_set():
            self._reap()
            arrived = self._arrivals.next(bool(self._sessions))
            if arrived is None:
                continue
            connection, key = arrived
            with connection:
                if len(self._sessions) >= MAX_SESSIONS:
                    error = DeviceError(f"the server has {MAX_SESSIONS} sessions already; try again later")
                    with contextlib.suppress(OneIRError):
                        wire.send(connection, {"error": wire.encode_error(error)})
                else:
                    self._sessions.add(self._fork(connection, key))

    def _fork(self, connection: socket.socket, key: str) -> int:
        with warnings.catch_warnings():
            # Python warns of threads that hold locks in the child; those of OneIR are free there.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        status = _REFUSED
        try:
            _forget_sockets(connection.fileno())
            timeout, next_one = greet(connection, key, self._secret, self._limit)
            status = 0
            if self._prepare is not None:
                self._prepare()
            serve(connection, timeout, next_one, self._limit)
        finally:  # whatever was raised belongs to this session, whose client has been told or is gone
            os._exit(status)

    def _reap(self) -> None:
        for pid in list(self._sessions):
            try:
                found, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                found, status = pid, 0  # somebody else has waited for it
            if found:
                self._sessions.discard(pid)
                self._arrivals.ended(os.waitstatus_to_exitcode(status) != _REFUSED)

    def wait(self) -> None:
        """Returns when the server has ended."""
        while self._thread.is_alive():
            self._thread.join(1)  # so that a signal is handled meanwhile

    def terminate(self) -> None:
        """Ends the server and all sessions."""
        self._stopped.set()
        self._thread.join()
        self._arrivals.close()
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
