"""Programs over whole tensors, divided among workers as a few annotations ask for, compute what NumPy computes."""

import numpy as np
import pytest

from oneir import relax
from oneir.ir import transform
from oneir.relax.distributed import transform as distributed
from oneir.runtime import disco
from oneir.script import ir as I
from oneir.script import relax as R

LOWER = transform.Sequential(
    [
        distributed.PropagateSharding(),
        distributed.LegalizeRedistribute(),
        distributed.LowerGlobalViewToLocalView(),
        distributed.LowerDistIR(),
    ]
)


def computed(module, workers, inputs, shape, tmp_path, session_type=disco.ThreadedSession, lower=LOWER):
    """What worker 0 has of the result, of a shape, when workers run a program on worker 0's inputs."""
    lowered = lower(module)
    assert relax.analysis.well_formed(lowered)
    path = str(tmp_path / "program.so")
    relax.build(lowered, "llvm").export_library(path)
    with session_type(num_workers=workers) as session:
        session.init_ccl("cpu")
        args = []
        for value in inputs:
            args.append(session.empty(value.shape, str(value.dtype)))
            session.copy_to_worker_0(value, args[-1])
        result = np.empty(shape, "float32")
        session.copy_from_worker_0(result, session.load_vm_module(path)["main"](*args))
    return result


def normal(*shapes):
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype("float32") for shape in shapes]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mlp(workers):
    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((workers,), I.Range(0, workers))]})

        @R.function
        def main(
            x: R.Tensor((6, 8), "float32"),
            up: R.Tensor((8, 16), "float32"),
            bias: R.Tensor((16,), "float32"),
            down: R.Tensor((16, 8), "float32"),
        ):
            with R.dataflow():
                columns = R.dist.annotate_sharding(up, "mesh[0]", "S[1]")
                hidden = R.nn.relu(R.add(R.matmul(x, columns), bias))
                y = R.nn.softmax(R.add(x, R.matmul(hidden, down)))
                R.output(y)
            return y

    return Module


@pytest.mark.parametrize("session", [disco.ThreadedSession, disco.ProcessSession])
@pytest.mark.parametrize("workers", [2, 4])
def test_an_mlp(workers, session, tmp_path):
    x, up, bias, down = inputs = normal((6, 8), (8, 16), (16,), (16, 8))
    expected = softmax(x + np.maximum(x @ up + bias, 0) @ down)
    np.testing.assert_allclose(computed(mlp(workers), workers, inputs, (6, 8), tmp_path, session), expected, rtol=1e-5)


def attention(workers):
    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((workers,), I.Range(0, workers))]})

        @R.function
        def main(
            x: R.Tensor((2, 6, 16), "float32"),
            wq: R.Tensor((16, 16), "float32"),
            wk: R.Tensor((16, 16), "float32"),
            wv: R.Tensor((16, 16), "float32"),
            wo: R.Tensor((16, 16), "float32"),
        ):
            with R.dataflow():
                wq = R.dist.annotate_sharding(wq, "mesh[0]", "S[1]")
                q = R.permute_dims(R.reshape(R.matmul(x, wq), (2, 6, 4, 4)), [0, 2, 1, 3])
                k = R.permute_dims(R.reshape(R.matmul(x, wk), (2, 6, 4, 4)), [0, 2, 3, 1])
                v = R.permute_dims(R.reshape(R.matmul(x, wv), (2, 6, 4, 4)), [0, 2, 1, 3])
                scores = R.nn.softmax(R.multiply(R.matmul(q, k), R.const(0.5, "float32")))
                heads = R.permute_dims(R.matmul(scores, v), [0, 2, 1, 3])
                y = R.matmul(R.reshape(heads, (2, 6, 16)), wo)
                R.output(y)
            return y

    return Module


@pytest.mark.parametrize("session", [disco.ThreadedSession, disco.ProcessSession])
@pytest.mark.parametrize("workers", [2, 4])
def test_attention(workers, session, tmp_path):
    x, wq, wk, wv, wo = inputs = normal((2, 6, 16), *[(16, 16)] * 4)
    q, k, v = ((x @ w).reshape(2, 6, 4, 4).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
    heads = softmax(q @ k.transpose(0, 1, 3, 2) * 0.5) @ v
    expected = heads.transpose(0, 2, 1, 3).reshape(2, 6, 16) @ wo
    found = computed(attention(workers), workers, inputs, (2, 6, 16), tmp_path, session)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_one_annotation_divides_all_that_attention_ties_to_heads():
    module = distributed.PropagateSharding()(attention(2))
    placements = {p.name: str(p.struct_info.placement) for p in module["main"].params}
    assert placements == {"x": "R", "wq": "S[1]", "wk": "S[1]", "wv": "S[1]", "wo": "S[0]"}
    text = LOWER(attention(2)).script()
    assert text.count("R.ccl.allreduce") == 1
    assert text.count("R.ccl.scatter_from_worker0") == 4


@I.ir_module
class Moved:
    """Every way in which a tensor changes its place."""

    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(x: R.Tensor((4, 6, 8), "float32")):
        with R.dataflow():
            first = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
            last = R.dist.redistribute(R.exp(first), "mesh[0]", "S[2]")
            weights = R.nn.softmax(last)  # a row is one worker's: rows are gathered
            middle = R.dist.redistribute(R.sum(weights, [0], keepdims=True), "mesh[0]", "S[1]")
            whole = R.dist.annotate_sharding(
                R.multiply(middle, R.const(np.arange(48).reshape(6, 8) * 1.0, "float32")), "mesh[0]", "R"
            )
            R.output(whole)
        return whole


@pytest.mark.parametrize("session", [disco.ThreadedSession, disco.ProcessSession])
def test_tensors_that_change_their_place(session, tmp_path):
    (x,) = normal((4, 6, 8))
    expected = softmax(np.exp(x)).sum(0, keepdims=True) * np.arange(48, dtype="float32").reshape(6, 8)
    np.testing.assert_allclose(computed(Moved, 2, [x], (1, 6, 8), tmp_path, session), expected, rtol=1e-5)


def test_a_row_is_gathered_for_what_needs_all_of_it():
    text = distributed.PropagateSharding()(Moved).script()
    assert 'R.dist.redistribute(last, device_mesh="mesh[0]", placement="R")' in text
    lowered = LOWER(Moved).script()
    assert lowered.count("R.ccl.allgather") == 3
    assert lowered.count("R.dist.redistribute_replica_to_shard") == 3


def test_the_order_of_cutting_and_moving_does_not_matter(tmp_path):
    passes = [
        distributed.PropagateSharding(),
        distributed.LowerGlobalViewToLocalView(),
        distributed.LegalizeRedistribute(),
        distributed.LowerDistIR(),
    ]
    (x,) = normal((4, 6, 8))
    result = computed(Moved, 2, [x], (1, 6, 8), tmp_path, lower=transform.Sequential(passes))
    expected = softmax(np.exp(x)).sum(0, keepdims=True) * np.arange(48, dtype="float32").reshape(6, 8)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_several_results_and_symbolic_extents(tmp_path):
    """Rows of an unknown number are not divided; both halves of columns are, where whole columns stay together."""

    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"), gate: R.Tensor((2, 8, 12), "float32"), down: R.Tensor((12, 8), "float32")
        ):
            with R.dataflow():
                columns = R.dist.annotate_sharding(gate, "mesh[0]", "S[2]")
                parts = R.split(columns, 2, axis=0)
                up = R.matmul(x, R.squeeze(parts[0], [0]))
                weight = R.sigmoid(R.matmul(x, R.squeeze(parts[1], [0])))
                y = R.matmul(R.multiply(up, weight), down)
                R.output(y)
            return y

    placed = distributed.PropagateSharding()(Module)
    assert [str(p.struct_info.placement) for p in placed["main"].params] == ["R", "S[2]", "S[0]"]
    x, gate, down = inputs = normal((5, 8), (2, 8, 12), (12, 8))
    result = computed(Module, 2, inputs, (5, 8), tmp_path)
    expected = (x @ gate[0] / (1 + np.exp(-(x @ gate[1])))) @ down
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_fields_of_tuples_are_handed_out():
    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(weights: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((8, 4), "float32"))):
            with R.dataflow():
                a = R.dist.annotate_sharding(weights[0], "mesh[0]", "S[1]")
                y = R.matmul(a, weights[1])
                R.output(y)
            return y

    lowered = LOWER(Module)
    assert relax.analysis.well_formed(lowered)
    text = lowered.script()
    assert 'weights: R.Tuple(R.Tensor((4, 8), dtype="float32"), R.Tensor((8, 4), dtype="float32"))' in text
    assert "num_workers=2, axis=1" in text and "num_workers=2, axis=0" in text
    assert text.count("R.ccl.allreduce") == 1
