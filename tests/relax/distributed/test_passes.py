"""The passes for distributed programs one at a time: what they give, and what they refuse."""

import numpy as np
import pytest

from oneir import relax
from oneir.ir import Range, assert_structural_equal
from oneir.relax.distributed import DeviceMesh, transform
from oneir.runtime.error import InvalidValue, WellFormedError
from oneir.script import from_source
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import interpret


def placements(module):
    """The placements of all variables of `main`, by their names."""
    func = module["main"]
    variables = [*func.params, *(b.var for block in func.body.blocks for b in block.bindings)]
    return {var.name: str(var.struct_info.placement) for var in variables}


@I.ir_module
class Grid:
    """Rows of the data along one dimension of a mesh, columns of the weights along the other."""

    I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 6), "float32"), b: R.Tensor((6,), "float32")):
        with R.dataflow():
            rows = R.dist.annotate_sharding(x, "mesh[0]", "S[0], R")
            columns = R.dist.annotate_sharding(w, "mesh[0]", "R, S[1]")
            y = R.matmul(rows, columns)
            z = R.add(y, b)
            R.output(z)
        return z


def test_each_dimension_of_a_mesh_divides_by_itself():
    module = transform.PropagateSharding()(Grid)
    assert placements(module) == {
        "x": "S[0], R",
        "w": "R, S[1]",
        "b": "R, S[0]",
        "y": "S[0], S[1]",
        "z": "S[0], S[1]",
    }
    assert relax.analysis.well_formed(module)
    assert_structural_equal(from_source(module.script()), module)
    local = transform.LowerGlobalViewToLocalView()(module)
    assert relax.analysis.well_formed(local)
    (name,) = [var for var in local.functions if var.name_hint == "matmul"]
    shapes = [[int(e) for e in b.shape] for b in local[name].buffer_map.values()]
    assert shapes == [[2, 8], [8, 3], [2, 3]]
    assert_structural_equal(from_source(local.script()), local)


def test_modules_without_annotations_stay():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            y = R.exp(x)
            return y

    for make in (
        transform.PropagateSharding,
        transform.LegalizeRedistribute,
        transform.LowerGlobalViewToLocalView,
        transform.LowerDistIR,
    ):
        assert make()(Module) is Module or make()(Module)["main"] is Module["main"]


@I.ir_module
class Written:
    """A kernel that a user wrote, called on distributed tensors."""

    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @T.prim_func(private=True)
    def product(a: T.Buffer((8, 4), "float32"), b: T.Buffer((4, 6), "float32"), c: T.Buffer((8, 6), "float32")):
        for i, j, k in T.grid(8, 6, 4):
            with T.block("c"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    @R.function
    def main(
        x: R.DTensor((8, 4), "float32", "mesh[0]", "S[1]"), w: R.DTensor((4, 6), "float32", "mesh[0]", "S[0]")
    ) -> R.DTensor((8, 6), "float32", "mesh[0]", "R"):
        cls = Written
        y = R.dist.call_tir(cls.product, (x, w), out_sinfo=R.DTensor((8, 6), "float32", "mesh[0]", "R"))
        return y


@I.ir_module
class WrittenLocal:
    """What each of its workers runs."""

    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @T.prim_func(private=True)
    def product(a: T.Buffer((8, 2), "float32"), b: T.Buffer((2, 6), "float32"), c: T.Buffer((8, 6), "float32")):
        for i, j, k in T.grid(8, 6, 2):
            with T.block("c"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    @R.function
    def main(
        x: R.DTensor((8, 4), "float32", "mesh[0]", "S[1]"), w: R.DTensor((4, 6), "float32", "mesh[0]", "S[0]")
    ) -> R.DTensor((8, 6), "float32", "mesh[0]", "R"):
        cls = WrittenLocal
        part = R.dist.call_tir_local_view(cls.product, (x, w), out_sinfo=R.DTensor((8, 6), "float32", "mesh[0]", "R"))
        y = R.ccl.allreduce(part, op_type="sum", in_group=True)
        return y


def test_a_sum_over_parts_is_put_together():
    assert_structural_equal(from_source(Written.script()), Written)
    local = transform.LowerGlobalViewToLocalView()(Written)
    assert_structural_equal(
        local["main"].body.blocks[0].bindings[1], WrittenLocal["main"].body.blocks[0].bindings[1], map_free_vars=True
    )
    made = local["main"].body.blocks[0].bindings[0].value.args[0]
    assert_structural_equal(local[made], WrittenLocal["product"])
    assert_structural_equal(from_source(local.script()), local)


def test_operators_on_distributed_tensors_say_what_they_give():
    mesh = DeviceMesh((2,), Range(0, 2))
    builder = relax.BlockBuilder()

    def tensor(shape, placement):
        info = relax.TensorStructInfo(shape, "float32")
        return relax.Var("x", relax.distributed.DTensorStructInfo(info, mesh, placement))

    def placed(call):
        return str(builder.normalize(call).struct_info.placement)

    op = relax.op
    assert placed(op.matmul(tensor((4, 8), "S[0]"), tensor((8, 6), "R"))) == "S[0]"
    assert placed(op.matmul(tensor((4, 8), "S[1]"), tensor((8, 6), "S[0]"))) == "R"
    assert placed(op.permute_dims(tensor((4, 8), "S[0]"))) == "S[1]"
    assert placed(op.sum(tensor((4, 6, 8), "S[2]"), [1])) == "S[1]"
    assert placed(op.nn.softmax(tensor((4, 8), "S[1]"))) == "R"
    parts = builder.normalize(op.split(tensor((4, 8), "S[0]"), 2, axis=1)).struct_info.fields
    assert [str(part.placement) for part in parts] == ["S[0]", "S[0]"]
    with pytest.raises(InvalidValue, match="the result would be divided along two axes by dimension 0 of the mesh"):
        builder.normalize(op.matmul(tensor((4, 8), "S[0]"), tensor((8, 6), "S[1]")))
    other = relax.distributed.DTensorStructInfo(
        relax.TensorStructInfo((4, 8), "float32"), DeviceMesh((2,), [1, 0]), "R"
    )
    with pytest.raises(InvalidValue, match=r"relax\.add: the arguments lie on different meshes"):
        builder.normalize(op.add(tensor((4, 8), "R"), relax.Var("y", other)))


def one_call(first, second):
    """A product of two annotated matrices."""

    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2)), R.device_mesh((4,), I.Range(0, 4))]})

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 6), "float32")):
            a = R.dist.annotate_sharding(x, first[0], first[1])
            b = R.dist.annotate_sharding(w, second[0], second[1])
            y = R.matmul(a, b)
            return y

    return Module


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            ("mesh[0]", "S[0]"),
            ("mesh[0]", "S[1]"),
            "conflicting annotations: dimension 0 of the mesh would divide the (call in two ways|axes 0 and 1 of `y`)",
        ),
        (("mesh[0]", "S[0]"), ("mesh[1]", "R"), "all tensors of a function lie on one mesh"),
        (("mesh[0]", "R"), ("mesh[0]", "S[2]"), r'the placement "S\[2\]" divides axis 2 of a tensor of 2 dimensions'),
        (
            ("mesh[1]", "R"),
            ("mesh[1]", "S[1]"),
            r"divides axis 1 among 4 workers, but its extent 6 is no multiple of 4",
        ),
        (("mesh[0]", "R, R"), ("mesh[0]", "R"), r'the placement "R, R" is for a mesh of 2 dimensions, found 1'),
    ],
)
def test_annotations_that_cannot_be_followed(first, second, message):
    with pytest.raises(InvalidValue, match=message):
        transform.PropagateSharding()(one_call(first, second))


def test_one_tensor_is_not_divided_along_two_axes():
    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
            b = R.dist.annotate_sharding(R.exp(a), "mesh[0]", "S[1]")
            return b

    with pytest.raises(
        InvalidValue, match=r"conflicting annotations: .* the axes 0 and 1 of `x`; say where .*redistribute"
    ):
        transform.PropagateSharding()(Module)


def test_what_a_function_may_not_hold():
    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function(private=True)
        def inner(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            cls = Module
            a = R.dist.annotate_sharding(x, "mesh[0]", "S[0]")
            b = cls.inner(a)
            return b

    with pytest.raises(
        InvalidValue, match="only operators and kernels are divided among workers; inline the function `inner`"
    ):
        transform.PropagateSharding()(Module)


def test_kernels_get_wholes_or_parts():
    with pytest.raises(WellFormedError, match=r"argument 0 \(`a`\) of `product`: expected a tensor of shape \[8, 2\]"):
        from_source(WrittenLocal.script().replace("R.dist.call_tir_local_view", "R.dist.call_tir"))
    with pytest.raises(WellFormedError, match=r"argument 0 \(`a`\) of `product`: expected a tensor of shape \[8, 4\]"):
        from_source(Written.script().replace("R.dist.call_tir", "R.dist.call_tir_local_view"))


def test_passes_that_come_too_early_or_too_late():
    with pytest.raises(InvalidValue, match="a kernel over whole tensors; run LowerGlobalViewToLocalView first"):
        transform.LowerDistIR()(Written)
    with pytest.raises(InvalidValue, match="has no place yet; run PropagateSharding first"):
        text = Grid.script().replace("annotate_sharding", "redistribute")
        transform.LegalizeRedistribute()(from_source(text))
    with pytest.raises(InvalidValue, match="the mesh must be all workers of a program in a row"):
        transform.LowerDistIR()(transform.LowerGlobalViewToLocalView()(transform.PropagateSharding()(Grid)))
    moved = from_source(Written.script().replace('"mesh[0]", "S[1]")', '"mesh[0]", "S[0]")'))
    with pytest.raises(InvalidValue, match=r'fits the placements `a` "S\[0\]", `b` "S\[0\]", `c` "R"'):
        transform.LowerGlobalViewToLocalView()(moved)


def test_on_one_worker_placements_change_nothing():
    random = np.random.default_rng(5)
    x, w = (random.standard_normal(shape).astype("float32") for shape in ((4, 8), (8, 6)))
    module = one_call(("mesh[0]", "S[0]"), ("mesh[0]", "R"))
    np.testing.assert_allclose(interpret(module, x, w), x @ w, rtol=1e-5)


def test_constants_are_cut_where_they_meet_parts():
    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                a = R.dist.annotate_sharding(x, "mesh[0]", "S[1]")
                y = R.add(a, R.const(np.arange(8), "float32"))
                R.output(y)
            return y

    module = transform.PropagateSharding()(Module)
    (cut,) = [b for b in module["main"].body.blocks[0].bindings if b.value.op is relax.op.distributed.redistribute.op]
    assert str(cut.value.args[0].struct_info.placement) == "R"
    assert str(cut.var.struct_info.placement) == "S[0]"
