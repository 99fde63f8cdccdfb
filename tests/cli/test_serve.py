"""`oneir serve` with models that are no language models."""

from __future__ import annotations

import sys
import threading
import time

import httpx2
import pytest
import uvicorn
from cli_results import fails

SCRIPT = """
from oneir.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
"""
LOOPS = """
from oneir.script import ir as I, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
        for i in range(2):
            b[i] = a[i] * T.float32(2)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "twice.py"
    path.write_text(SCRIPT)
    return path


def test_two_models_answer_until_the_server_is_told_to_stop(cli, monkeypatch, script, tmp_path):
    assert cli("compile", str(script), "-o", str(tmp_path / "compiled.so"))[0] == 0
    servers: list[uvicorn.Server] = []
    made = uvicorn.Server.__init__

    def make(self, config):
        made(self, config)
        servers.append(self)

    monkeypatch.setattr(uvicorn.Server, "__init__", make)
    monkeypatch.setenv("ONEIR_API_KEY", "secret")
    found: list = []

    def ask() -> None:
        while not (servers and servers[0].started):
            time.sleep(0.01)
        address = f"http://127.0.0.1:{servers[0].servers[0].sockets[0].getsockname()[1]}"
        found.append(httpx2.get(f"{address}/v2/models").status_code)
        given = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]}
        for name in ("a", "b"):
            path, key = f"{address}/v2/models/{name}/infer", {"authorization": "Bearer secret"}
            found.append(httpx2.post(path, json={"inputs": [given]}, headers=key).json())
        servers[0].should_exit = True

    asking = threading.Thread(target=ask)
    asking.start()
    files = (str(script), str(tmp_path / "compiled.so"))
    code, _, _ = cli("serve", *files, "--port", "0", "--name", "a", "--name", "b", "--batch", "4", "--queue", "5")
    asking.join()
    assert code == 0 and found[0] == 401
    assert [(answer["model_name"], answer["outputs"][0]["data"]) for answer in found[1:]] == [
        ("a", [3, 4]),
        ("b", [3, 4]),
    ]


def test_command_lines_that_are_refused(cli, script, tmp_path):
    assert fails(cli("serve", str(script), "folder")) == (
        "oneir serve: a language model has a server of its own, and folder is one; found 2 models"
    )
    assert fails(cli("serve", str(script), "--context", "4")) == (
        f"oneir serve: --context is for language models; {script} is none"
    )
    assert fails(cli("serve", "model.gguf", "--batch-wait", "4")) == (
        "oneir serve: --batch-wait is for models that are no language models; model.gguf is one"
    )
    assert fails(cli("serve", str(script), str(script))) == (
        "oneir serve: expected 2 names, --name for each model another one; found twice, twice"
    )
    (tmp_path / "loops.py").write_text(LOOPS)
    assert fails(cli("serve", str(tmp_path / "loops.py"), "--port", "0")).endswith(
        "loops.py has functions of loops, which write into their arguments; a server runs graphs"
    )
    assert (
        fails(cli("serve", str(tmp_path / "none.onnx"), "--port", "0"))
        == f"oneir serve: there is no file {tmp_path / 'none.onnx'}"
    )
    (tmp_path / "fixed.py").write_text(SCRIPT.replace('"n"', "3"))
    assert "fixed.py: batches need a first extent of all inputs that is one symbol" in fails(
        cli("serve", str(tmp_path / "fixed.py"), "--batch", "2", "--port", "0")
    )


def test_a_package_that_is_missing(cli, monkeypatch, script):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert fails(cli("serve", str(script))) == (
        "oneir serve: a server needs the package uvicorn: pip install 'oneir[serve]'"
    )
