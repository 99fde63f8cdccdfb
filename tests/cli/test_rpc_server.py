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
    environment = {**os.environ, "ONEIR_RPC_KEY": "secret"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", server.stdout.readline())
        assert found is not None
        with rpc.connect("127.0.0.1", int(found[1]), "secret") as remote:
            remote.upload(str(tmp_path / "add.tar"))
            values = [oneir.nd.array(np.arange(4, dtype="float32"), remote.cpu()) for _ in range(2)]
            remote.load_module("add.tar")["add"](*values)
            np.testing.assert_array_equal(values[1].numpy(), [1, 2, 3, 4])
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=60)
    assert (server.returncode, out, err) == (130, "", "oneir rpc-server: interrupted\n")


def test_an_address_that_others_reach_needs_a_key(cli, monkeypatch):
    monkeypatch.delenv("ONEIR_RPC_KEY", raising=False)
    assert fails(cli("rpc-server", "--host", "0.0.0.0")) == (
        "oneir rpc-server: whoever reaches 0.0.0.0 could run code here: give the server a key, or let it listen on "
        "127.0.0.1; the key is what ONEIR_RPC_KEY says"
    )
