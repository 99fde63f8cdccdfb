"""Tensor cores of NVIDIA's GPUs: matrices of 16 rows in the registers of a warp, loaded, multiplied and stored.

A matrix that a warp holds is a buffer of the scope "warp" of the shape `(32, n)`: `n` elements for each of 32 threads.
Which thread holds which element is given by `fragment_layout`; the descriptions of the intrinsics say the same, so a
schedule brings a cached matrix into this form with `transform_layout` before it is tensorized:

    group = get_mma_intrin_group("shared", "global", "float16", "float16", "float32", False, False)
    sch.tensorize(loop, group["compute"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, Var, const
from ...runtime.error import InvalidValue
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc, TensorIntrin
from ..op import address_of
from ..op_vendor import mma_fill, mma_store, ptx_ldmatrix, ptx_mma
from ..stmt import BufferStore, Evaluate, For, ForKind, Stmt, flat_seq
from .describe import function_of, loops_around

WARP_SIZE = 32
M_DIM = N_DIM = 16
_SHORT = {"float16": "f16", "bfloat16": "bf16", "int8": "i8", "float32": "f32", "int32": "i32"}
_PTX = {"float16": "fp16", "bfloat16": "bf16", "int8": "int8", "float32": "fp32", "int32": "int32"}
_ACCUMULATORS = {"float16": ("float16", "float32"), "bfloat16": ("float32",), "int8": ("int32",)}
"""By the dtype of the factors, those of sums."""
_SCOPES = {"shared": "", "shared.dyn": "_dyn"}
Layout = Callable[[Any, Any], tuple[Any, Any]]
"""From a row and a column to a thread of the warp and the number of one of its elements."""


# -- layouts --


def shared_16x16_to_ldmatrix_32x8_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Where the element of a 16 by 16 matrix of sums, or of factors of 16 bits on the left, is: thread, element."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)


def shared_16x32_to_ldmatrix_32x16_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Where the element of a 16 by 32 matrix of bytes on the left is: thread, element."""
    return 4 * (i % 8) + (j % 16) // 4, 8 * (j // 16) + (i // 8) * 4 + j % 4


def shared_32x16_to_ldmatrix_32x16_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Where the element of a 32 by 16 matrix of bytes on the right is: thread, element."""
    return (i % 16) // 4 + 4 * (j % 8), 8 * (j // 8) + (i // 16) * 4 + i % 4


def ldmatrix_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> tuple[Any, Any]:
    """The row and the column of an element of a 16 by 16 matrix of sums."""
    row = 8 * (local_id % 4 // 2) + (thread_id // 4)
    col = 8 * (local_id // 4) + (thread_id % 4) * 2 + (local_id % 2)
    return row, col


def _right_16x16(k: Any, j: Any) -> tuple[Any, Any]:
    return 4 * (j % 8) + (k % 8) // 2, 4 * (j // 8) + (k // 8) * 2 + (k % 2)


def k_dim(dtype: str) -> int:
    """How many products of a dtype one intrinsic adds up."""
    return 256 // DataType(dtype).bits


def fragment_layout(matrix: str, dtype: str, transposed: bool = False) -> Layout:
    """Where a matrix, "A" (rows by sum), "B" (sum by columns) or "C" (rows by columns), lies in a warp's registers.

    A `transposed` matrix is given with its axes exchanged. Raises `InvalidValue` for another matrix.
    """
    if matrix not in ("A", "B", "C"):
        raise InvalidValue(f'expected the matrix "A", "B" or "C", found {matrix!r}')
    layout = shared_16x16_to_ldmatrix_32x8_layout
    if matrix != "C" and k_dim(dtype) == 32:
        layout = shared_16x32_to_ldmatrix_32x16_layout if matrix == "A" else shared_32x16_to_ldmatrix_32x16_layout
    elif matrix == "B":
        layout = _right_16x16
    return (lambda i, j: layout(j, i)) if transposed else layout


# -- functions --


def _fragment(name: str, elements: int, dtype: str, scope: str = "warp") -> Buffer:
    """A matrix in registers: elements by thread, or, in the scopes "wmma", by row and column."""
    shape = (WARP_SIZE, elements) if scope == "warp" else (M_DIM, N_DIM)
    return decl_buffer(shape, dtype, name, scope=scope, data_alignment=64)


def _as_it_is(i: Any, j: Any) -> tuple[Any, Any]:
    """The layout of a fragment by row and column."""
    return i, j


def _exchanged(i: Any, j: Any) -> tuple[Any, Any]:
    return j, i


def _in_warp(body: Callable[[Var], Iterable[Stmt]]) -> Stmt:
    """Statements of each thread of a warp."""
    tx = Var("tx", "int32")
    thread = IterVar(None, Var("threadIdx.x", "int32"), IterVar.ThreadIndex, "threadIdx.x")
    statements = flat_seq(list(body(tx)))
    return For(tx, const(0), const(WARP_SIZE), ForKind.THREAD_BINDING, statements, thread_binding=thread)


def _own(fragment: Buffer, tx: Var) -> PrimExpr:
    """The address of the first element that a thread holds; a fragment of the scope "wmma" does not say which it is."""
    return address_of(BufferLoad(fragment, [tx, 0] if fragment.scope() == "warp" else [0, 0]))


def get_ldmatrix_intrin(
    k_dim: int, dtype: str, matrix_name: str, transposed: bool, shared_scope: str = "shared", scope: str = "warp"
) -> tuple[PrimFunc, PrimFunc]:
    """Loads a matrix, "A" or "B", from shared memory, which holds it with its axes exchanged if `transposed`."""
    shape = (M_DIM, k_dim) if (matrix_name == "A") != transposed else (k_dim, N_DIM)
    elements = M_DIM * k_dim // WARP_SIZE
    layout = fragment_layout(matrix_name, dtype, transposed) if scope == "warp" else _as_it_is

    def buffers() -> tuple[Buffer, Buffer]:
        shared = decl_buffer(shape, dtype, "shared", scope=shared_scope, data_alignment=64)
        return _fragment("warp", elements, dtype, scope), shared

    warp, shared = buffers()

    def copy(i: Var, j: Var) -> tuple[BufferStore, list[BufferLoad]]:
        value = BufferLoad(shared, [i, j])
        return BufferStore(warp, value, list(layout(i, j))), [value]

    described = function_of([warp, shared], [shared], warp, loops_around("shared_warp", "SS", shape, copy))
    warp, shared = buffers()

    def load(tx: Var) -> Iterable[Stmt]:
        # Four matrices of 8 rows of 16 bytes: a thread gives the address of one row of one of them. Neighbouring
        # elements of the sum lie side by side in a register, so the matrix is transposed where they do not in memory.
        rows_of_sum = (matrix_name == "A") == transposed
        matrix, row = tx // 8, tx % 8
        first, second = 8 * (matrix % 2), 8 * (matrix // 2)
        along, across = (second, first) if matrix_name == "A" else (first, second)
        if rows_of_sum and dtype == "int8":  # ldmatrix transposes elements of 16 bits only
            for element in range(elements):
                i, j = _position(matrix_name, tx, element)
                value = BufferLoad(shared, [i, j] if shape[0] == k_dim else [j, i])
                yield BufferStore(warp, value, [tx, element])
            return
        width = 16 // DataType(dtype).bits
        place = [along + row, across] if rows_of_sum else [across + row, along * width]
        source = address_of(BufferLoad(shared, place))
        yield Evaluate(ptx_ldmatrix(dtype, rows_of_sum, 4, ".b16", _own(warp, tx), 0, source, 0))

    return described, function_of([warp, shared], [shared], warp, _in_warp(load))


def _position(matrix: str, tx: Any, element: int) -> tuple[Any, Any]:
    """The place along the sum, and the row (of "A") or column (of "B"), of a byte that a thread holds."""
    k = 4 * (tx % 4) + element % 4
    if matrix == "A":
        return k + 16 * (element // 8), tx // 4 + 8 * (element // 4 % 2)
    return k + 16 * (element // 4 % 2), tx // 4 + 8 * (element // 8)


def get_mma_intrin(
    k_dim: int,
    a_dtype: str = "float16",
    b_dtype: str = "float16",
    out_dtype: str = "float16",
    a_transposed: bool = False,
    b_transposed: bool = False,
    scopes: tuple[str, str, str] = ("warp", "warp", "warp"),
) -> tuple[PrimFunc, PrimFunc]:
    """C += A * B in the registers of a warp.

    Registers are the same whether memory is transposed or not, so `a_transposed` and `b_transposed` matter only for
    fragments by row and column.
    """
    elements = M_DIM * k_dim // WARP_SIZE
    of_a, of_b, of_c = (fragment_layout(matrix, a_dtype) for matrix in "ABC")
    if scopes[0] != "warp":
        of_a, of_b, of_c = (_exchanged if t else _as_it_is for t in (a_transposed, b_transposed, False))

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        a, b = _fragment("A", elements, a_dtype, scopes[0]), _fragment("B", elements, b_dtype, scopes[1])
        return a, b, _fragment("C", 8, out_dtype, scopes[2])

    a, b, c = buffers()

    def product(i: Var, j: Var, k: Var) -> tuple[BufferStore, list[BufferLoad]]:
        left, right = BufferLoad(a, list(of_a(i, k))), BufferLoad(b, list(of_b(k, j)))
        total = BufferLoad(c, list(of_c(i, j)))
        added = ops.multiply(ops.cast(out_dtype, left), ops.cast(out_dtype, right))
        return BufferStore(c, ops.add(total, added), total.indices), [total, left, right]

    described = function_of([a, b, c], [c, a, b], c, loops_around("C", "SSR", (M_DIM, N_DIM, k_dim), product))
    a, b, c = buffers()
    kinds = ("row", "col", _PTX[a_dtype], _PTX[b_dtype], _PTX[out_dtype])

    def multiply(tx: Var) -> Iterable[Stmt]:
        for half in range(2):  # of 8 columns
            pointers = (_own(a, tx), 0, _own(b, tx), half * elements // 2, _own(c, tx), half * 4)
            yield Evaluate(ptx_mma(out_dtype, f"m16n8k{k_dim}", *kinds, *pointers, False))

    return described, function_of([a, b, c], [c, a, b], c, _in_warp(multiply))


def get_mma_fill_intrin(dtype: str, local_size: int, scope: str = "warp") -> tuple[PrimFunc, PrimFunc]:
    """Sets a matrix of sums to zero."""
    warp = _fragment("C_warp", local_size, dtype, scope)
    layout = fragment_layout("C", dtype) if scope == "warp" else _as_it_is

    def clear(i: Var, j: Var) -> tuple[BufferStore, list[BufferLoad]]:
        return BufferStore(warp, const(0, dtype), list(layout(i, j))), []

    described = function_of([warp], [], warp, loops_around("C_warp", "SS", (M_DIM, N_DIM), clear))
    warp = _fragment("C_warp", local_size, dtype, scope)
    fill = _in_warp(lambda tx: [Evaluate(mma_fill(dtype, local_size, _own(warp, tx), 0))])
    return described, function_of([warp], [], warp, fill)


def get_mma_store_intrin(
    dtype: str,
    local_size: int,
    scope: str = "global",
    use_mma_store_intrinic: bool = True,
    fragment_scope: str = "warp",
) -> tuple[PrimFunc, PrimFunc]:
    """Stores a matrix of sums, by one call or, without `use_mma_store_intrinic`, element by element."""
    layout = fragment_layout("C", dtype) if fragment_scope == "warp" else _as_it_is

    def buffers(**fields: Any) -> tuple[Buffer, Buffer]:
        target = decl_buffer((M_DIM, N_DIM), dtype, "C", scope=scope, **fields)
        return _fragment("C_warp", local_size, dtype, fragment_scope), target

    warp, target = buffers()

    def store(i: Var, j: Var) -> tuple[BufferStore, list[BufferLoad]]:
        load = BufferLoad(warp, list(layout(i, j)))
        return BufferStore(target, load, [i, j]), [load]

    described = function_of([warp, target], [warp], target, loops_around("C_warp", "SS", (M_DIM, N_DIM), store))
    stride = Var("s0", "int32")
    warp, target = buffers(strides=[stride, Var("s1", "int32")])

    def write(tx: Var) -> Iterable[Stmt]:
        if use_mma_store_intrinic:
            start = address_of(BufferLoad(target, [0, 0]))
            yield Evaluate(mma_store(dtype, M_DIM, N_DIM, start, _own(warp, tx), 0, stride))
            return
        for element in range(local_size):
            place = ldmatrix_32x8_to_shared_16x16_layout(tx, element)
            yield BufferStore(target, BufferLoad(warp, [tx, element]), list(place))

    return described, function_of([warp, target], [warp], target, _in_warp(write))


# -- names --


def _register_all() -> None:
    for dtype, sums in _ACCUMULATORS.items():
        k, short = k_dim(dtype), _SHORT[dtype]
        for transposed, suffix in ((False, ""), (True, "_trans")):
            for scope, dyn in _SCOPES.items():
                for matrix in "AB":
                    name = f"mma_ldmatrix_{short}_{matrix.lower()}{suffix}{dyn}"
                    TensorIntrin.provide(name, get_ldmatrix_intrin, k, dtype, matrix, transposed, scope)
        for out in sums:
            for suffix in ("", "_trans_a", "_trans_b", "_trans_a_trans_b"):
                TensorIntrin.provide(f"mma_{short}{short}{_SHORT[out]}{suffix}", get_mma_intrin, k, dtype, dtype, out)
    for out in ("float16", "float32", "int32"):
        short = _SHORT[out]
        TensorIntrin.provide(f"mma_fill_16x16_{short}", get_mma_fill_intrin, out, 8)
        for scope in ("global", *_SCOPES):
            name = f"mma_store_16x16_{short}_{scope.replace('.', '_')}_"
            TensorIntrin.provide(name, get_mma_store_intrin, out, 8, scope)
            TensorIntrin.provide(f"{name}simple_", get_mma_store_intrin, out, 8, scope, False)


def _register_wmma() -> None:
    a_scope, b_scope, c_scope = scopes = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
    for transposed, suffix in ((False, ""), (True, "_trans")):
        for scope in _SCOPES:
            for matrix, fragment in (("A", a_scope), ("B", b_scope)):
                name = f"wmma_load_16x16x16_f16_{matrix.lower()}{suffix}_{scope.replace('.', '_')}"
                TensorIntrin.provide(name, get_ldmatrix_intrin, 16, "float16", matrix, transposed, scope, fragment)
        for out in _ACCUMULATORS["float16"]:
            name = f"wmma_sync_16x16x16_f16f16{_SHORT[out]}{suffix}"
            TensorIntrin.provide(name, get_mma_intrin, 16, "float16", "float16", out, False, transposed, scopes)
    for out in _ACCUMULATORS["float16"]:
        TensorIntrin.provide(f"wmma_fill_16x16x16_{_SHORT[out]}", get_mma_fill_intrin, out, 8, c_scope)
        for scope in ("global", *_SCOPES):
            name = f"wmma_store_16x16x16_{_SHORT[out]}_{scope.replace('.', '_')}"
            TensorIntrin.provide(name, get_mma_store_intrin, out, 8, scope, True, c_scope)


_register_all()
_register_wmma()


def get_mma_intrin_group(
    load_scope: str,
    store_scope: str,
    a_dtype: str,
    b_dtype: str,
    out_dtype: str,
    trans_a: bool,
    trans_b: bool,
    not_use_mma_store_intrinic: bool = True,
    store_to_smem_dtype: str | None = None,
) -> dict[str, str]:
    """The names of intrinsics that fit together: "init", "load_a", "load_b", "compute" and "store".

    `store_to_smem_dtype` is the dtype that is stored; None is that of the sums. Raises `InvalidValue` for scopes and
    dtypes that tensor cores do not take.
    """
    _check("load_scope", load_scope, _SCOPES)
    _check("store_scope", store_scope, ("global", *_SCOPES))
    _check("a_dtype", a_dtype, _ACCUMULATORS)
    _check("b_dtype", b_dtype, (a_dtype,))
    _check("out_dtype", out_dtype, _ACCUMULATORS[a_dtype])
    stored = store_to_smem_dtype or out_dtype
    _check("store_to_smem_dtype", stored, ("float16", "float32", "int32"))
    short, out, dyn = _SHORT[a_dtype], _SHORT[out_dtype], _SCOPES[load_scope]
    a, b = "_trans" if trans_a else "", "_trans" if trans_b else ""
    simple = "simple_" if not_use_mma_store_intrinic else ""
    return {
        "init": f"mma_fill_16x16_{out}",
        "load_a": f"mma_ldmatrix_{short}_a{a}{dyn}",
        "load_b": f"mma_ldmatrix_{short}_b{b}{dyn}",
        "compute": f"mma_{short}{short}{out}{a and '_trans_a'}{b and '_trans_b'}",
        "store": f"mma_store_16x16_{_SHORT[stored]}_{store_scope.replace('.', '_')}_{simple}",
    }


def get_wmma_intrin_group(
    load_scope: str, store_scope: str, in_dtype: str, out_dtype: str, trans_b: bool
) -> dict[str, str]:
    """As `get_mma_intrin_group`, for matrices of 16 rows and columns of the scopes "wmma.matrix_a", "wmma.matrix_b" and
    "wmma.accumulator", whose elements a program names by row and column, and only intrinsics access.
    """
    _check("load_scope", load_scope, _SCOPES)
    _check("store_scope", store_scope, ("global", *_SCOPES))
    _check("in_dtype", in_dtype, ("float16",))
    _check("out_dtype", out_dtype, _ACCUMULATORS[in_dtype])
    load, out, b = load_scope.replace(".", "_"), _SHORT[out_dtype], "_trans" if trans_b else ""
    return {
        "init": f"wmma_fill_16x16x16_{out}",
        "load_a": f"wmma_load_16x16x16_f16_a_{load}",
        "load_b": f"wmma_load_16x16x16_f16_b{b}_{load}",
        "compute": f"wmma_sync_16x16x16_f16f16{out}{b}",
        "store": f"wmma_store_16x16x16_{out}_{store_scope.replace('.', '_')}",
    }


def _check(what: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise InvalidValue(f"expected {what} to be {' or '.join(map(repr, allowed))}, found {value!r}")
