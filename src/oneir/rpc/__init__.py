"""Sessions in which tensors, files and compiled modules are sent to a device and used there.

remote = oneir.rpc.LocalSession()
remote.upload("lib.tar")
remote.load_module("lib.tar")["add_one"](a, b)
"""

from __future__ import annotations

from .base import random_key, split_random_key
from .client import LocalSession, RPCSession

__all__ = ["LocalSession", "RPCSession", "random_key", "split_random_key"]
