"""`oneir rpc-server`: lets clients of `oneir.rpc` upload modules to this machine, and run and time them here."""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

from ..runtime.error import InvalidValue

_EPILOG = """\
examples:
  oneir rpc-server                                                   for programs of this machine
  ONEIR_RPC_KEY=secret oneir rpc-server --host 0.0.0.0 --port 9090   for whoever knows the key

then, in Python:
  remote = oneir.rpc.connect("address", 9090, key="secret")

Whoever knows the key may run any code here, with the rights of this process, and what is sent is not encrypted: in a
network that is not yours, put it through a tunnel (ssh -L).
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "rpc-server",
        help="let clients upload modules, and run and time them on this machine",
        description="Takes connections of oneir.rpc.connect. Each session has a process of its own.",
        epilog=_EPILOG,
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 is all (127.0.0.1)")
    parser.add_argument("--port", type=int, default=9090, help="the port, or the next free one; 0 takes any (9090)")
    parser.add_argument(
        "--max-message", type=int, default=256, metavar="MIB", help="the largest file that is uploaded, in MiB (256)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..rpc.server import Server

    key, limit = os.environ.get("ONEIR_RPC_KEY", ""), options.max_message * 2**20
    try:
        server = Server(options.host, options.port, options.port + 100, key, limit=limit)
    except InvalidValue as error:
        raise InvalidValue(f"{error}; the key is what ONEIR_RPC_KEY says") from None
    with server:
        print(f"listening on {server.host}:{server.port}", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        server.wait()
