"""`oneir rpc-server`, in a process of its own, and a client here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from cli_results import fails

import oneir
from oneir import rpc, te


def test_a_module_is_compiled_here_and_runs_there(tmp_path: Path):
    x = te.placeholder((4,), name="x")
    add = te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] + 1.0, name="y")])
    oneir.compile(add.with_attr("global_symbol", "add")).export_library(tmp_path / "add.tar")
    command = [sys.executable, "-m", "oneir", "rpc-server", "--port", "0"]
    environment = {**os.environ, "ONEIR_RPC_SECRET": "secret"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", server.stdout.readline())
        assert found is not None
        with rpc.connect("127.0.0.1", int(found[1]), secret="secret") as remote:
            remote.upload(str(tmp_path / "add.tar"))
            values = [oneir.nd.array(np.arange(4, dtype="float32"), remote.cpu()) for _ in range(2)]
            remote.load_module("add.tar")["add"](*values)
            np.testing.assert_array_equal(values[1].numpy(), [1, 2, 3, 4])
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=60)
    assert (server.returncode, out, err) == (130, "", "oneir rpc-server: interrupted\n")


def test_a_tracker_a_proxy_and_a_server_are_three_processes():
    def started(*arguments: str) -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-m", "oneir", *arguments]
        environment = {**os.environ, "ONEIR_RPC_SECRET": "s"}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        found = re.fullmatch(r"(listening on|behind) 127\.0\.0\.1:(\d+)\n", process.stdout.readline())
        assert found is not None
        return process, int(found[2])

    processes: list[subprocess.Popen[str]] = []
    try:
        _, tracker = started("rpc-tracker", "--port", "0")
        _, proxy = started("rpc-proxy", "--port", "0", "--tracker", f"127.0.0.1:{tracker}")
        started("rpc-server", "--key", "board", "--proxy", f"127.0.0.1:{proxy}")
        with rpc.connect_tracker("127.0.0.1", tracker, secret="s").request("board") as remote:
            assert remote.get_function("rpc.test.addone")(1) == 2
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [130, 130, 130]


def test_what_does_not_go_together_is_refused(cli, monkeypatch):
    monkeypatch.delenv("ONEIR_RPC_SECRET", raising=False)
    assert fails(cli("rpc-server", "--host", "0.0.0.0")) == (
        "oneir rpc-server: whoever reaches 0.0.0.0 could run code by this server: give it a secret (secret=, or "
        "ONEIR_RPC_SECRET in the environment), or the address 127.0.0.1"
    )
    assert fails(cli("rpc-server", "--proxy", "127.0.0.1:1", "--tracker", "127.0.0.1:2")) == (
        "oneir rpc-server: a server behind a proxy is announced by the proxy: give --tracker to that one"
    )
