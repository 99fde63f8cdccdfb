"""Sessions in which tensors, files and compiled modules are sent to a device and used there.

with oneir.rpc.Server(secret="secret") as server:       # there; or `oneir rpc-server`
    remote = oneir.rpc.connect("127.0.0.1", server.port, secret="secret")
    remote.upload("lib.tar")
    remote.load_module("lib.tar")["add_one"](a, b)       # a and b lie on remote.cpu()

`LocalSession` is a session with this process itself; `connect_tracker` finds a free one of many servers.
"""

from __future__ import annotations

from .base import random_key, split_random_key
from .client import LocalSession, RPCSession
from .remote import RemoteFunction, RemoteMachine, RemoteModule, RemoteSession, connect
from .server import Server
from .tracker_session import TrackerSession, connect_tracker

__all__ = [
    "LocalSession",
    "RPCSession",
    "RemoteFunction",
    "RemoteMachine",
    "RemoteModule",
    "RemoteSession",
    "Server",
    "TrackerSession",
    "connect",
    "connect_tracker",
    "random_key",
    "split_random_key",
]
