"""The tensors that functions take, which of them a graph calls how often, and functions as scripts of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...ir.expr import GlobalVar, IntImm, PrimExpr
from ...ir.module import IRModule
from ...relax.analysis import post_order_visit
from ...relax.expr import Call, Expr, Function
from ...relax.op.base import call_tir
from ...runtime.error import InvalidValue
from ...target.target import Target
from ...tir.function import PrimFunc
from ..analysis import collect_vars_used_in_prim_expr

Dim = int | str | PrimExpr
"""An extent: a number, the name of a variable, or an expression of variables."""
TensorInfo = tuple[tuple[Dim, ...], str]
"""The shape and dtype of a tensor."""


def extract_func_info_from_prim_func(func: PrimFunc) -> tuple[list[TensorInfo], dict[str, str]]:
    """The shape and dtype of each parameter, and the dtypes of the variables in the shapes, by name.

    Extents that are known are ints. Raises `InvalidValue` for a parameter that is no tensor.
    """
    tensors: list[TensorInfo] = []
    variables: dict[str, str] = {}
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            raise InvalidValue(f"expected a function of tensors, found the parameter `{param}` of dtype {param.dtype}")
        shape: tuple[Dim, ...] = tuple(dim.value if isinstance(dim, IntImm) else dim for dim in buffer.shape)
        for dim in shape:
            if isinstance(dim, PrimExpr):
                variables.update((v.name, str(v.dtype)) for v in collect_vars_used_in_prim_expr(dim))
        tensors.append((shape, str(buffer.dtype)))
    return tensors, variables


def extract_all_func_info_from_relax(mod: IRModule) -> dict[GlobalVar, dict[GlobalVar, int]]:
    """Of each graph, the PrimFuncs that it calls by `call_tir`, and in how many places."""
    return {var: called_by(func) for var, func in mod.functions.items() if isinstance(func, Function)}


def called_by(func: Function) -> dict[GlobalVar, int]:
    """The PrimFuncs that a graph calls by `call_tir`, and in how many places."""
    found: Counter[GlobalVar] = Counter()

    def visit(expr: Expr) -> None:
        if isinstance(expr, Call) and expr.op is call_tir.op:
            callee = expr.args[0]
            assert isinstance(callee, GlobalVar)
            found[callee] += 1

    post_order_visit(func, visit)
    return dict(found)


def extract_prim_func(
    model_name: str,
    relax_func_name: str,
    prim_func_name: str,
    func: PrimFunc,
    *,
    func_args: Sequence[TensorInfo] | None = None,
    dym_var_dict: Mapping[str, str] | None = None,
    weight: int = 1,
    sample_number: int = 5,
    target: Target | str | None = None,
) -> str:
    """A script that measures a function by `benchmark_prim_func` when it is run.

    `func_args` and `dym_var_dict` are what `extract_func_info_from_prim_func` finds, unless given; `weight` is how
    often the graph `relax_func_name` calls the function. `target` is the current one unless given; raises
    `InvalidValue` where there is none.
    """
    tensors, variables = extract_func_info_from_prim_func(func)
    func_args = tensors if func_args is None else func_args
    dym_var_dict = variables if dym_var_dict is None else dict(dym_var_dict)
    args = [(tuple(_plain(dim) for dim in shape), dtype) for shape, dtype in func_args]
    text = func.with_attr("global_symbol", prim_func_name).script(show_meta=True)
    return f'''"""{prim_func_name}, which {relax_func_name} of {model_name} calls."""

from oneir.dlight.benchmark import benchmark_prim_func
from oneir.script import tir as T


{text[text.index("@T.prim_func") :]}

if __name__ == "__main__":
    benchmark_prim_func(
        {prim_func_name},
        args={args!r},
        dym_var_dict={dym_var_dict!r},
        sample_number={sample_number},
        target={Target.target_or_current(target).export()!r},
        weight={weight},
    )
'''


def _plain(dim: Dim) -> int | str:
    """An extent as it is written in a script."""
    return dim if isinstance(dim, int) else str(dim)


def extract_from_relax(
    mod: IRModule, model_name: str, file_path: str | Path, target: Target | str | None = None
) -> None:
    """Writes `extract_prim_func` of each PrimFunc that a graph calls into a folder, as `GRAPH_FUNCTION.py`."""
    folder = Path(file_path)
    folder.mkdir(parents=True, exist_ok=True)
    for graph, callees in extract_all_func_info_from_relax(mod).items():
        for callee, weight in callees.items():
            func = mod[callee]
            if isinstance(func, PrimFunc):
                names = graph.name_hint, callee.name_hint
                text = extract_prim_func(model_name, *names, func, weight=weight, target=target)
                (folder / f"{'_'.join(names)}.py").write_text(text)
