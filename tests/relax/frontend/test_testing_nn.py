"""The earlier API for models, `relax.testing.nn`."""

from __future__ import annotations

import pytest

from oneir import ir, relax, te
from oneir.relax.testing import nn
from oneir.runtime.error import OneIRError


class RelaxLinear(nn.Module):
    def __init__(self, in_features, out_features, dtype: str, bias=True) -> None:
        super().__init__()
        self.weight = nn.Parameter((out_features, in_features), dtype, name="linear_weight")
        self.bias = nn.Parameter((1, out_features), dtype, name="linear_bias") if bias else None

    def forward(self, x: relax.Expr) -> relax.Var:
        return nn.emit(relax.op.linear(x, self.weight, self.bias))


class RelaxMLP(nn.Module):
    def __init__(self, in_features, hidden_dims, out_features, dtype="float32") -> None:
        super().__init__()
        self.linear1 = RelaxLinear(in_features, hidden_dims, dtype)
        self.linear2 = RelaxLinear(hidden_dims, out_features, dtype)

    def forward(self, x: relax.Expr) -> relax.Var:
        return self.linear2(nn.emit(relax.op.nn.relu(self.linear1(x))))


class LinearInTensorExpressions(nn.Module):
    def __init__(self, in_features, out_features):
        self.out_features = out_features
        self.weight = nn.Parameter((out_features, in_features), "float32", name="linear_weight")
        self.bias = nn.Parameter((1, out_features), "float32", name="linear_bias")

    def forward(self, x: relax.Expr) -> relax.Var:
        def my_linear(x, w, b=None):
            last = [self.out_features]
            out_sinfo = x.shape[:-1] + last
            k = te.reduce_axis((0, self.out_features), name="k")
            return te.compute(out_sinfo, fcompute=lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="matmul")

        return nn.emit_te(my_linear, x, self.weight, self.bias)


class MLPInTensorExpressions(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        self.linear1 = LinearInTensorExpressions(in_features, hidden)
        self.linear2 = LinearInTensorExpressions(hidden, out_features)

    def forward(self, input: relax.Expr) -> relax.Var:
        return self.linear2(nn.emit(relax.op.nn.relu(self.linear1(input))))


def build(kind):
    bb = relax.BlockBuilder()
    model = kind(784, 128, 10)
    with bb.function("main"):
        input = nn.Placeholder((1, 784), dtype="float32", name="input")
        with bb.dataflow():
            logits = model(input)
            params = [input, *model.parameters()]
            gv = bb.emit_output(logits)
        bb.emit_func_output(gv, params)
    return bb.get()


SIGNATURE = 'def main(input: R.Tensor((1, 784), dtype="float32"), linear_weight: R.Tensor((128, 784), dtype="float32"), linear_bias: R.Tensor((1, 128), dtype="float32"), linear_weight_1: R.Tensor((10, 128), dtype="float32"), linear_bias_1: R.Tensor((1, 10), dtype="float32")) -> R.Tensor((1, 10), dtype="float32"):'


def test_a_model_prints_as_documented():
    assert (
        build(RelaxMLP).script()
        == f"""\
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    {SIGNATURE}
        with R.dataflow():
            lv: R.Tensor((784, 128), dtype="float32") = R.permute_dims(linear_weight, axes=None)
            lv1: R.Tensor((1, 128), dtype="float32") = R.matmul(input, lv, out_dtype="void")
            lv2: R.Tensor((1, 128), dtype="float32") = R.add(lv1, linear_bias)
            lv3: R.Tensor((1, 128), dtype="float32") = R.nn.relu(lv2)
            lv4: R.Tensor((128, 10), dtype="float32") = R.permute_dims(linear_weight_1, axes=None)
            lv5: R.Tensor((1, 10), dtype="float32") = R.matmul(lv3, lv4, out_dtype="void")
            lv6: R.Tensor((1, 10), dtype="float32") = R.add(lv5, linear_bias_1)
            gv: R.Tensor((1, 10), dtype="float32") = lv6
            R.output(gv)
        return gv"""
    )


def test_tensor_expressions_print_as_documented():
    def loops(name: str, data: str, rows: int, columns: int) -> str:
        return f"""\
    @T.prim_func(private=True)
    def {name}({data}: T.Buffer((T.int64(1), T.int64({columns})), "float32"), linear_weight: T.Buffer((T.int64({rows}), T.int64({columns})), "float32"), linear_bias: T.Buffer((T.int64(1), T.int64({rows})), "float32"), matmul: T.Buffer((T.int64(1), T.int64({rows})), "float32")):
        T.func_attr({{"tir.noalias": True}})
        # with T.block("root"):
        for i, j, k in T.grid(T.int64(1), T.int64({rows}), T.int64({rows})):
            with T.block("matmul"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads({data}[v_i, v_k], linear_weight[v_j, v_k])
                T.writes(matmul[v_i, v_j])
                with T.init():
                    matmul[v_i, v_j] = T.float32(0.0)
                matmul[v_i, v_j] = matmul[v_i, v_j] + {data}[v_i, v_k] * linear_weight[v_j, v_k]
"""

    assert (
        build(MLPInTensorExpressions).script()
        == f"""\
# from tvm.script import ir as I
# from tvm.script import tir as T
# from tvm.script import relax as R

@I.ir_module
class Module:
{loops("my_linear", "input", 128, 784)}
{loops("my_linear1", "lv1", 10, 128)}
    @R.function
    {SIGNATURE}
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.my_linear, (input, linear_weight, linear_bias), out_sinfo=R.Tensor((1, 128), dtype="float32"))
            lv1: R.Tensor((1, 128), dtype="float32") = R.nn.relu(lv)
            lv2 = R.call_tir(cls.my_linear1, (lv1, linear_weight_1, linear_bias_1), out_sinfo=R.Tensor((1, 10), dtype="float32"))
            gv: R.Tensor((1, 10), dtype="float32") = lv2
            R.output(gv)
        return gv"""
    )


def test_parameters_are_a_list_in_the_order_of_attributes():
    class Nested(nn.Module):
        def __init__(self):
            self.first = nn.Parameter((1,), name="a")
            self.layers = [nn.Linear(2, 3), {"x": nn.Linear(3, 4, bias=False)}]
            self.ready = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LogSoftmax())

    params = Nested().parameters()
    assert [p.name for p in params] == [
        "a",
        *["linear_weight", "linear_bias"],
        "linear_weight",
        "linear_weight",
        "linear_bias",
    ]


def test_names_are_free_inside_of_a_function():
    bb = relax.BlockBuilder()
    with bb.function("main"):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
        data = nn.Placeholder((3, 4))
        out = model(data)
        bb.emit_func_output(out, [data, *model.parameters()])
    mod = bb.get()
    assert [p.name for p in mod["main"].params] == ["data", "linear_weight", "linear_bias", "linear_weight1"]
    assert [p.shape for p in nn.init_params(mod)] == [(4, 4), (4,), (4, 2)]


def test_checkpoints():
    bb = relax.BlockBuilder()
    x = nn.Placeholder((2,), name="x")
    with bb.function("main", [x]):
        with bb.dataflow():
            out = nn.emit_checkpoint_sequential([relax.op.sin, relax.op.cos, relax.op.exp], 3, x)
            out = bb.emit_output(out)
        bb.emit_func_output(out)
    text = bb.get().script()
    assert text.count("R.grad.start_checkpoint(") == text.count("R.grad.end_checkpoint(") == 2
    assert text.index("R.sin(") < text.index("R.cos(") < text.index("R.exp(")


def test_misuse_says_what_to_do():
    with pytest.raises(OneIRError, match=r"this is called inside of `with bb.function\(name\)`"):
        nn.emit(relax.const(1.0))
    with pytest.raises(TypeError, match="the shape of a Parameter is a list or a tuple, found 3"):
        nn.Parameter(3)
    with pytest.raises(NotImplementedError, match="the module Module has no method `forward`"):
        nn.Module()(1)


def test_placeholders_are_variables_as_any_other() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main"):
        x = nn.Placeholder((2, 3), name="x")
        builder.emit_func_output(nn.emit(relax.op.exp(x)), [x])
    y = relax.Var("y", relax.TensorStructInfo((2, 3), "float32"))
    other = relax.BlockBuilder()
    with other.function("main", [y]):
        other.emit_func_output(other.emit(relax.op.exp(y)))
    mod = builder.get()
    ir.assert_structural_equal(mod, other.get())
    assert ir.structural_hash(mod) == ir.structural_hash(other.get())
    read = ir.load_json(ir.save_json(mod))
    assert type(read["main"].params[0]) is relax.Var
    ir.assert_structural_equal(read, mod)
