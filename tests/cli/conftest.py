"""Models for the commands: one exported by PyTorch, a graph as JSON, and loops as TVMScript; and a way to run commands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oneir import ir
from oneir.cli.main import main
from oneir.script import from_source

GRAPH = """
# from tvm.script import ir as I
# from tvm.script import relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), flags: R.Tensor((2,), "bool"), k: R.Prim("int64")):
        with R.dataflow():
            double = R.add(x, x)
            out = (double, (flags, R.astype(double, "float16")), k)
            R.output(out)
        return out

    @R.function
    def twice(x: R.Tensor((2,), "int32"), x_1: R.Tensor((2,), "int32")):
        with R.dataflow():
            out = R.multiply(x, x_1)
            R.output(out)
        return out
"""

LOOPS = """
from tvm.script import tir as T

@T.prim_func
def add_one(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] + T.float32(1)
"""


class Network(torch.nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 4), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.fixture(scope="session")
def graph() -> str:
    """The text of `graph.json`."""
    return GRAPH


@pytest.fixture(scope="session")
def network() -> Network:
    torch.manual_seed(4)
    return Network().eval()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Path:
    """A folder with `net.pt2`, for any number of rows, `graph.json` and `loops.py`."""
    folder = tmp_path_factory.mktemp("models")
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    torch.export.save(torch.export.export(network, (torch.zeros(2, 8),), dynamic_shapes=shapes), folder / "net.pt2")
    (folder / "graph.json").write_text(ir.save_json(from_source(GRAPH)))
    (folder / "loops.py").write_text(LOOPS)
    return folder


@pytest.fixture
def cli(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a command in an empty folder; gives the exit code and what it wrote. `{models}` stands for the models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEIR_DEBUG", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([argument.replace("{models}", str(models)) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def rows(cli) -> str:
    """The name that the exporter gave to the number of rows of `net.pt2`."""
    code, text, _ = cli("show", "{models}/net.pt2")
    assert code == 0
    return text.split('R.Tensor(("')[1].split('"')[0]
