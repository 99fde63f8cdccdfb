"""`oneir bench`: which contestants it measures, what it says of the kernels, and what it refuses. No time is judged."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from oneir import ir
from oneir.bench.contestant import PEERS
from oneir.cli.main import main
from oneir.script import from_source

GRAPH = """
# from tvm.script import ir as I
# from tvm.script import relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), flags: R.Tensor((2,), "bool")):
        with R.dataflow():
            out = (R.exp(x), flags)
            R.output(out)
        return out
"""


class Network(torch.nn.Module):
    """Takes a dictionary and returns one, and makes numbers of its own, which must be float64 in the reference."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)

    def forward(self, entry: dict[str, torch.Tensor], scale: torch.Tensor) -> dict[str, torch.Tensor]:
        places = torch.arange(8, dtype=torch.float32) / 8
        hidden = torch.relu(self.first(entry["x"] + places))
        return {"result": self.second(hidden) * scale, "rows": entry["rows"] + 1}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `net.pt2`, exported for any number of rows with 4, and `graph.json`."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=2, max=64)
    inputs = ({"x": torch.zeros(4, 8), "rows": torch.zeros(4, dtype=torch.int64)}, torch.ones(()))
    shapes = ({"x": {0: rows}, "rows": {0: rows}}, None)
    torch.export.save(torch.export.export(Network().eval(), inputs, dynamic_shapes=shapes), folder / "net.pt2")
    (folder / "graph.json").write_text(ir.save_json(from_source(GRAPH)))
    return folder


def bench(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["bench", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


PARAM = "entry_x"

# ONNX files take PyTorch half a minute of a slow processor.
AGAINST = [["eager"], pytest.param(["eager", "onnxruntime", "openvino"], marks=pytest.mark.long)]


@pytest.mark.parametrize("peers", AGAINST, ids="-".join)
def test_everything_is_in_the_json(models, capsys, tmp_path, peers) -> None:
    peers = [name for name in peers if not PEERS[name].missing]
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((6, 8)).astype("float32"))
    x = f"--input={PARAM}={tmp_path / 'x.npy'}"
    code, out, err = bench(
        capsys, models / "net.pt2", x, "--against", ",".join(peers), "--threads", 1, "--rounds", 1, "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    assert [(r["peer"], r["failure"]) for r in found["results"]] == [(name, None) for name in ["oneir", *peers]]
    for result in found["results"]:
        # Rounding in float32; a result in another order, or of another input, is wrong by more.
        assert 0 <= result["error"] < 1e-5 and result["seconds"] >= result["shortest"] > 0
        assert result["peak_bytes"] > 1 << 20
    assert found["results"][0]["compile_seconds"] > 0 and found["results"][0]["load_seconds"] > 0
    assert list(found["inputs"].values()) == ["float32[6, 8]", "int64[6]", "float32[]"]
    (profile,) = found["profiles"]
    assert profile["threads"] == 1 and profile["machine"]["flops"] > 1e8 and profile["machine"]["bandwidth"] > 1e8
    assert sum(kernel["calls"] for kernel in profile["kernels"]) == profile["footprint"]["kernels"]
    assert sum(kernel["share"] for kernel in profile["kernels"]) == pytest.approx(1)
    # Kernels for any number of rows have the costs of the rows that there were.
    product = next(k for k in profile["kernels"] if "float32[6, 16]" in k["shapes"] and "float32[6, 8]" in k["shapes"])
    assert 2 * 6 * 8 * 16 <= product["flops"] < 2 * 6 * 8 * 16 + 8 * 6 * 16 + 8 * 6 * 8
    assert product["gflops"] == pytest.approx(product["flops"] / product["seconds"] / 1e9) and product["roofline"] > 0


def test_a_module_without_pytorch_is_profiled_as_text(models, capsys) -> None:
    code, out, err = bench(capsys, models / "graph.json", "--extent", "n=5", "--threads", 1, 2, "--rounds", 1)
    assert code == 0, err
    assert "Inputs: x float32[5, 3], flags bool[2]" in out
    assert out.count("| OneIR ") == 2 and "PyTorch" not in out
    assert "OneIR with 1 thread: 1 calls of kernels" in out and "OneIR with 2 threads: 1 calls" in out
    header, _, kernel, whole = out.strip().splitlines()[-4:]
    assert [cell.strip() for cell in header.split("|")][5:-1] == [
        "MB",
        "GFLOP/s",
        "GB/s",
        "Roofline",
        "Kernel",
        "Shapes",
    ]
    assert "5x3 5x3" in kernel and "| all " in whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net.pt2", "--against", "tvm"], "there is no peer 'tvm'; there are eager, inductor, onnxruntime, openvino"),
        (["graph.json", "--against", "eager"], "PyTorch eager runs .pt2 files, found graph.json"),
        (["net.pt2", "--extent", "columns=3"], "`main` has no symbolic extent 'columns'; it has "),
        (["missing.pt2"], "there is no file"),
    ],
)
def test_what_cannot_be_measured_is_refused(models, capsys, arguments, message) -> None:
    code, out, err = bench(capsys, models / arguments[0], *arguments[1:])
    assert code == 1 and not out and message in err


def test_a_peer_that_is_not_installed_is_named_with_its_package(models, capsys, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "openvino" else find(name, *rest)
    )
    code, _, err = bench(capsys, models / "net.pt2", "--against", "openvino")
    assert code == 1 and "OpenVINO needs openvino: pip install 'oneir[bench,torch]'" in err


@pytest.mark.parametrize("option", ["--threads", "--rounds"])
def test_numbers_from_one_on(models, capsys, option) -> None:
    with pytest.raises(SystemExit):
        main(["bench", str(models / "net.pt2"), option, "0"])
    assert "expected a number from 1 on, found '0'" in capsys.readouterr().err
