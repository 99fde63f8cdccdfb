"""Functions timed at sampled extents, in this process or by the server of a session."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arith import Analyzer
from ...ir.expr import GlobalVar, IntImm
from ...ir.module import IRModule
from ...relax.expr import Function
from ...runtime.benchmark import BenchmarkResult
from ...runtime.device import Device
from ...runtime.dtype import numpy_dtype
from ...runtime.error import InvalidValue
from ...runtime.tensor import tensor
from ...target.codegen import build
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.stmt_functor import substitute
from ..analysis import collect_vars_used_in_prim_expr
from .extract import Dim, TensorInfo, called_by, extract_func_info_from_prim_func

if TYPE_CHECKING:
    from ...rpc import RPCSession

Sampler = Callable[[Mapping[str, str]], Mapping[str, int]]
"""Values of variables, given their dtypes by name."""


def default_dym_var_sample_func(dym_var_dict: Mapping[str, str]) -> dict[str, int]:
    """A value from 2 to 128 for each variable."""
    return {name: random.randint(2, 128) for name in dym_var_dict}


def benchmark(
    mod_or_func: PrimFunc | IRModule,
    *,
    dym_var_sample: Mapping[str, int],
    args: Sequence[TensorInfo] | None = None,
    target: Target | str | Mapping[str, Any] | None = None,
    func_name: str | None = None,
    evaluator_config: Mapping[str, Any] | None = None,
    session: RPCSession | None = None,
) -> tuple[list[tuple[tuple[int, ...], str]], float, float]:
    """The shapes and dtypes of the arguments, and the median and the standard deviation of a call's seconds.

    dym_var_sample: values of the variables in shapes, by name.
    args: shapes, in which names stand for variables, and dtypes; those of the function's parameters unless given.
    target: the current one unless given. The function must be scheduled for it if it is a GPU.
    func_name: of a module, the function; needed where it has several.
    evaluator_config: options of `oneir.runtime.time_evaluator`.
    session: of `oneir.rpc`, whose other side measures; this process unless given.

    Raises `InvalidValue` where a variable has no value, or it is not known which function is meant.
    """
    func = _the_function(mod_or_func, func_name)
    infos = [
        (tuple(_extent(dim, dym_var_sample) for dim in shape), dtype)
        for shape, dtype in (extract_func_info_from_prim_func(func)[0] if args is None else args)
    ]
    goal = Target.target_or_current(target)
    module = build(IRModule({"main": func.with_attr("global_symbol", "main")}), goal)
    times = _times(module, goal.kind.name, infos, dict(evaluator_config or {"number": 10, "repeat": 3}), session)
    return infos, times.median, times.std


def _the_function(mod_or_func: PrimFunc | IRModule, name: str | None) -> PrimFunc:
    if isinstance(mod_or_func, PrimFunc):
        return mod_or_func
    funcs = {v.name_hint: func for v, func in mod_or_func.functions.items() if isinstance(func, PrimFunc)}
    if name is None and len(funcs) == 1:
        return next(iter(funcs.values()))
    if name not in funcs:
        raise InvalidValue(f"expected func_name to be one of {sorted(funcs)}, found {name!r}")
    return funcs[name]


def _extent(dim: Dim, sample: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        value = sample.get(dim)
    else:
        known = {v: sample[v.name] for v in collect_vars_used_in_prim_expr(dim) if v.name in sample}
        found = Analyzer().simplify(substitute(dim, {v: IntImm(v.dtype, n) for v, n in known.items()}))
        value = found.value if isinstance(found, IntImm) else None
    if value is None:
        raise InvalidValue(f"expected dym_var_sample to give the extent `{dim}` a value, found {dict(sample)}")
    return value


def _times(
    module: Any,
    device_type: str,
    infos: Sequence[tuple[tuple[int, ...], str]],
    options: dict[str, Any],
    session: RPCSession | None,
) -> BenchmarkResult:
    """Calls of `main` with random arguments."""
    rng = np.random.default_rng()
    # Numbers below two: integers may be indices, and floats not overflow.
    arrays = [np.asarray(rng.uniform(0, 2, shape)).astype(numpy_dtype(dtype)) for shape, dtype in infos]
    if session is None:
        dev = Device(device_type)
        return module.time_evaluator("main", dev, **options)(*(tensor(array, dev) for array in arrays))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.tar"
        module.export_library(str(path))
        session.upload(str(path))
    try:
        dev = session.device(device_type)
        evaluate = session.load_module(path.name).time_evaluator("main", dev, **options)
        return evaluate(*(tensor(array, dev) for array in arrays))
    finally:
        session.remove(path.name)


def benchmark_prim_func(
    mod_or_func: PrimFunc | IRModule,
    *,
    dym_var_sample_func: Sampler = default_dym_var_sample_func,
    args: Sequence[TensorInfo] | None = None,
    dym_var_dict: Mapping[str, str] | None = None,
    sample_number: int = 5,
    target: Target | str | Mapping[str, Any] | None = None,
    weight: int = 1,
    func_name: str | None = None,
    evaluator_config: Mapping[str, Any] | None = None,
    session: RPCSession | None = None,
) -> None:
    """Prints a line for each of `sample_number` samples of the variables: arguments, microseconds, bytes a second.

    `dym_var_dict` are the dtypes of the variables by name, those of the function's parameters unless given. A function
    without variables is measured once. `weight` is how often a model calls it; the rest is as for `benchmark`.
    """
    func = _the_function(mod_or_func, func_name)
    if dym_var_dict is None:
        dym_var_dict = extract_func_info_from_prim_func(func)[1]
    print(f"{'time (us)':>12}  {'std (us)':>10}  {'weighted (us)':>14}  {'GB/s':>8}  arguments")
    for _ in range(sample_number if dym_var_dict else 1):
        infos, median, std = benchmark(
            func,
            dym_var_sample=dym_var_sample_func(dym_var_dict),
            args=args,
            target=target,
            evaluator_config=evaluator_config,
            session=session,
        )
        size = sum(int(np.prod(shape)) * numpy_dtype(dtype).itemsize for shape, dtype in infos)
        rate = size / median / 1e9 if median else float("inf")
        shapes = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in infos)
        print(f"{median * 1e6:12.3f}  {std * 1e6:10.3f}  {median * weight * 1e6:14.3f}  {rate:8.2f}  {shapes}")


def benchmark_relax_func(
    mod: IRModule,
    relax_func: GlobalVar | str,
    sample_number: int = 2,
    dym_var_sample_func: Sampler = default_dym_var_sample_func,
    target: Target | str | Mapping[str, Any] | None = None,
    evaluator_config: Mapping[str, Any] | None = None,
    session: RPCSession | None = None,
) -> None:
    """Prints `benchmark_prim_func` of each PrimFunc that a graph calls. Raises `InvalidValue` for what is no graph."""
    func = mod[relax_func]
    if not isinstance(func, Function):
        raise InvalidValue(f"expected the name of a graph, found `{relax_func}`, a {type(func).__name__}")
    for callee, weight in called_by(func).items():
        kernel = mod[callee]
        assert isinstance(kernel, PrimFunc)
        print(f"{callee.name_hint}, called in {weight} places")
        benchmark_prim_func(
            kernel,
            dym_var_sample_func=dym_var_sample_func,
            sample_number=sample_number,
            target=target,
            weight=weight,
            evaluator_config=evaluator_config,
            session=session,
        )
