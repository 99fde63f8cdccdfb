"""The programs of the TVM Unity documents print letter for letter as the documents show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oneir.ir import IRModule, Range
from oneir.ir.expr import FloatImm, IntImm, Max, Var
from oneir.script.printer import script
from oneir.tir.buffer import Buffer, decl_buffer
from oneir.tir.expr import IterVar
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, Stmt

ZERO = FloatImm("float32", 0.0)
GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    """A text as the document has it; files end with a line break, printed text does not."""
    return (GOLDEN / f"{name}.txt").read_text().rstrip()


def buffer(name: str, *shape: int, dtype: str = "int64") -> Buffer:
    return decl_buffer([IntImm(dtype, extent) for extent in shape], "float32", name)


def nest(
    name: str,
    loops: Sequence[str],
    kinds: str,
    extents: Sequence[int],
    out: Callable[..., Any],
    value: Callable[..., Any],
    reads: Callable[..., Sequence[Any]],
    *,
    init: bool = False,
    dtype: str = "int64",
    axes: Sequence[str] | None = None,
) -> Stmt:
    """Loops around one block; the callables take the block's variables."""
    loop_vars = [Var(loop, dtype) for loop in loops]
    variables = [Var(axis, dtype) for axis in (axes or [f"v_{loop}" for loop in loops])]
    doms = [Range(IntImm(dtype, 0), IntImm(dtype, extent)) for extent in extents]
    iter_vars = [
        IterVar(dom, var, IterVar.DataPar if kind == "S" else IterVar.CommReduce)
        for dom, var, kind in zip(doms, variables, kinds, strict=True)
    ]
    target = out(*variables)
    block = Block(
        iter_vars,
        [BufferRegion.from_point(load.buffer, load.indices) for load in reads(*variables)],
        [BufferRegion.from_point(target.buffer, target.indices)],
        name,
        BufferStore(target.buffer, value(*variables), target.indices),
        BufferStore(target.buffer, ZERO, target.indices) if init else None,
    )
    stmt: Stmt = BlockRealize(loop_vars, True, block)
    for loop_var, extent in reversed(list(zip(loop_vars, extents, strict=True))):
        stmt = For(loop_var, 0, IntImm(dtype, extent), ForKind.SERIAL, stmt)
    return stmt


def function(params: Sequence[Buffer], *stmts: Stmt, alloc: Sequence[Buffer] = (), **attrs: Any) -> PrimFunc:
    body = stmts[0] if len(stmts) == 1 else SeqStmt(stmts)
    root = BlockRealize([], True, Block([], [], [], "root", body, alloc_buffers=alloc))
    return PrimFunc(params, root, attrs={"tir.noalias": True, **attrs})


def matmul_stmt(x: Buffer, w: Buffer, y: Buffer, rows: int, columns: int, depth: int) -> Stmt:
    return nest(
        "matmul",
        ["i0", "i1", "k"],
        "SSR",
        [rows, columns, depth],
        lambda i, j, k: y[i, j],
        lambda i, j, k: y[i, j] + x[i, k] * w[k, j],
        lambda i, j, k: [x[i, k], w[k, j]],
        init=True,
    )


def add_stmt(a: Buffer, b: Buffer, out: Buffer, rows: int, columns: int) -> Stmt:
    return nest(
        "T_add",
        ["ax0", "ax1"],
        "SS",
        [rows, columns],
        lambda i, j: out[i, j],
        lambda i, j: a[i, j] + b[j],
        lambda i, j: [a[i, j], b[j]],
    )


def add_function() -> PrimFunc:
    a, b, out = buffer("lv1", 1, 256), buffer("p_fc1_bias", 256), buffer("T_add", 1, 256)
    return function([a, b, out], add_stmt(a, b, out, 1, 256))


def relu_function() -> PrimFunc:
    a, out = buffer("lv2", 1, 256), buffer("compute", 1, 256)
    stmt = nest(
        "compute",
        ["i0", "i1"],
        "SS",
        [1, 256],
        lambda i, j: out[i, j],
        lambda i, j: Max(a[i, j], ZERO),
        lambda i, j: [a[i, j]],
    )
    return function([a, out], stmt)


def transpose_function(**attrs: Any) -> PrimFunc:
    a, out = buffer("p_fc1_weight", 256, 784), buffer("T_transpose", 784, 256)
    stmt = nest(
        "T_transpose",
        ["ax0", "ax1"],
        "SS",
        [784, 256],
        lambda i, j: out[i, j],
        lambda i, j: a[j, i],
        lambda i, j: [a[j, i]],
    )
    return function([a, out], stmt, **attrs)


def fused_function() -> PrimFunc:
    x, w, b = buffer("lv3", 1, 256), buffer("lv4", 256, 10), buffer("p_fc2_bias", 10)
    product, out = buffer("matmul_intermediate", 1, 10), buffer("T_add_intermediate", 1, 10)
    stmts = [matmul_stmt(x, w, product, 1, 10, 256), add_stmt(product, b, out, 1, 10)]
    return function([x, w, b, out], *stmts, alloc=[product])


def test_the_module_after_the_zero_pipeline_prints_as_in_the_document():
    module = IRModule(
        {
            # The order in which functions are added is none of the text's business.
            "transpose": transpose_function(op_pattern=2),
            "relu": relu_function(),
            "fused_matmul1_add1": fused_function(),
            "add": add_function(),
        }
    )
    assert module.script() == golden("module")


def test_a_function_alone_names_only_its_own_dialect():
    assert add_function().script(name="add") == golden("add")


def test_the_names_of_functions_print_as_in_the_document():
    module = IRModule({name: relu_function() for name in ("relu", "add", "main", "add1")})
    assert str(module.get_global_vars()) == (
        '[I.GlobalVar("add"), I.GlobalVar("add1"), I.GlobalVar("main"), I.GlobalVar("relu")]'
    )


def test_the_linear_layer_prints_with_int32_extents_and_without_its_own_symbol():
    x, w, b, z, y = (
        buffer(name, *shape, dtype="int32")
        for name, shape in {"X": (1, 784), "W": (128, 784), "B": (128,), "Z": (1, 128), "Y": (1, 128)}.items()
    )
    stmts = [
        nest(
            "Y",
            "ijk",
            "SSR",
            [1, 128, 784],
            lambda i, j, k: y[i, j],
            lambda i, j, k: y[i, j] + x[i, k] * w[j, k],
            lambda i, j, k: [x[i, k], w[j, k]],
            init=True,
            dtype="int32",
            axes=["vi", "vj", "vk"],
        ),
        nest(
            "Z",
            "ij",
            "SS",
            [1, 128],
            lambda i, j: z[i, j],
            lambda i, j: y[i, j] + b[j],
            lambda i, j: [y[i, j], b[j]],
            dtype="int32",
            axes=["vi", "vj"],
        ),
    ]
    linear = function([x, w, b, z], *stmts, alloc=[y], global_symbol="linear0")
    assert linear.script() == golden("linear0")
    # In a module under another name the symbol does not go without saying.
    assert 'T.func_attr({"global_symbol": "linear0", "tir.noalias": True})' in IRModule({"f": linear}).script()
    assert script(linear) == str(linear)
