"""`oneir rpc-server`, `rpc-tracker` and `rpc-proxy`: let clients of `oneir.rpc` run modules on other machines."""

from __future__ import annotations

import argparse
import signal
from typing import TYPE_CHECKING, Any

from ..runtime.error import InvalidValue
from .console import port

if TYPE_CHECKING:
    from ..rpc.server import Server
    from ..rpc.service import Service

_SECRET = """\
Whoever reaches it and knows the secret may run any code here, with the rights of this process, and what is sent is not
encrypted: in a network that is not yours, put it through a tunnel (ssh -L).
"""

_SERVER = f"""\
examples:
  oneir rpc-server                                                      for programs of this machine
  ONEIR_RPC_SECRET=secret oneir rpc-server --host 0.0.0.0 --port 9090   for whoever knows the secret
  oneir rpc-server --key board --tracker 10.0.0.1:9190                  for the clients of a tracker
  oneir rpc-server --key board --proxy 10.0.0.1:9091                    where no client reaches this machine

then, in Python:
  remote = oneir.rpc.connect("address", 9090, secret="secret")

{_SECRET}"""

_TRACKER = f"""\
then, there and in Python:
  oneir rpc-server --key board --tracker ADDRESS:9190
  remote = oneir.rpc.connect_tracker("address", 9190).request("board")

{_SECRET}"""

_PROXY = f"""\
then, there and in Python:
  oneir rpc-server --key board --proxy ADDRESS:9091
  remote = oneir.rpc.connect("address", 9091, key="board")

{_SECRET}"""


def add(commands: Any) -> None:
    """Declares the commands."""
    server = _added(commands, "rpc-server", 9090, "let clients upload modules, and run and time them here", _SERVER)
    server.add_argument("--key", default="", help="the name that clients ask for; no secret")
    server.add_argument("--tracker", type=_address, metavar="HOST:PORT", help="gives it to one client at a time")
    server.add_argument(
        "--proxy", type=_address, metavar="HOST:PORT", help="clients come through it; no port is opened"
    )
    server.add_argument("--custom-addr", metavar="HOST", help="where the tracker's clients find this machine")
    server.add_argument(
        "--max-message", type=int, default=256, metavar="MIB", help="the largest file that is uploaded, in MiB (256)"
    )
    server.set_defaults(run=_run_server)
    tracker = _added(commands, "rpc-tracker", 9190, "give each rpc-server to one client at a time", _TRACKER)
    tracker.set_defaults(run=_run_tracker)
    proxy = _added(commands, "rpc-proxy", 9091, "let clients reach each rpc-server that connects to it", _PROXY)
    proxy.add_argument("--tracker", type=_address, metavar="HOST:PORT", help="is told of the servers")
    proxy.set_defaults(run=_run_proxy)


def _added(commands: Any, name: str, default: int, what: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"To {what}. Clients show the secret that ONEIR_RPC_SECRET says.",
        epilog=epilog,
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 is all (127.0.0.1)")
    parser.add_argument(
        "--port", type=port, default=default, help=f"the port, or the next free one; 0 takes any ({default})"
    )
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, number = text.rpartition(":")
    if not host or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, found {text!r}")
    return host, port(number)


def _run_server(options: argparse.Namespace) -> None:
    from ..rpc.server import Server

    if options.proxy is not None and options.tracker is not None:
        raise InvalidValue("a server behind a proxy is announced by the proxy: give --tracker to that one")
    host, first = options.proxy or (options.host, options.port)
    server = Server(
        host,
        first,
        first + 100,
        is_proxy=options.proxy is not None,
        tracker_addr=options.tracker,
        key=options.key,
        custom_addr=options.custom_addr,
        limit=options.max_message * 2**20,
    )
    _wait(server, "behind" if options.proxy else "listening on")


def _run_tracker(options: argparse.Namespace) -> None:
    from ..rpc.tracker import Tracker

    _wait(Tracker(options.host, options.port, options.port + 100), "listening on")


def _run_proxy(options: argparse.Namespace) -> None:
    from ..rpc.proxy import Proxy

    _wait(Proxy(options.host, options.port, options.port + 100, options.tracker), "listening on")


def _wait(service: Server | Service, where: str) -> None:
    """Says where it is, and returns when it has ended, or this process is told to end."""
    with service:
        print(f"{where} {service.host}:{service.port}", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        service.wait()
