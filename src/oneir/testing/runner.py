"""Modules run and timed once, from a file: in this process, or by a server of another machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import rpc
from ..contrib import ndk
from ..runtime import BenchmarkResult, Module, Tensor, empty
from ..runtime.error import InvalidValue, TypeMismatch

Export = Callable[[Module, str], object]


def local_run(
    mod: Module,
    device_type: str,
    args: Sequence[Any],
    evaluator_config: Any = None,
    export_func: Export | str = "tar",
    output_format: str | None = None,
) -> tuple[list[Any], BenchmarkResult]:
    """Exports a module, loads the file, measures its entry function, and calls it once more.

    `args` are arrays and numbers; the first result is what they are after the calls, arrays as NumPy's.
    `evaluator_config` has `number`, `repeat` and `min_repeat_ms` of the measurement, None are three calls.
    `export_func` is "tar", "ndk", or a function of the module and a path whose extension is `output_format`.
    """
    return _run(rpc.LocalSession(), mod, device_type, args, evaluator_config, export_func, output_format)


def rpc_run(
    mod: Module,
    device_type: str,
    args: Sequence[Any],
    evaluator_config: Any = None,
    rpc_config: Any = None,
    export_func: Export | str = "tar",
    output_format: str | None = None,
) -> tuple[list[Any], BenchmarkResult]:
    """As `local_run`, by a server with the key `rpc_config.tracker_key` that is free, or the next one that will be.

    The tracker at `rpc_config.tracker_host` and `.tracker_port` knows. Without `rpc_config`, the environment's
    TVM_TRACKER_HOST, TVM_TRACKER_PORT and TVM_TRACKER_KEY say so.
    """
    where = [_setting(rpc_config, name) for name in ("tracker_host", "tracker_port", "tracker_key")]
    session = rpc.connect_tracker(where[0], int(where[1])).request(where[2])
    return _run(session, mod, device_type, args, evaluator_config, export_func, output_format)


def _setting(config: Any, name: str) -> str:
    variable = f"TVM_{name.upper()}"
    value = getattr(config, name, None) if config is not None else os.environ.get(variable)
    if value is None:
        raise InvalidValue(f"expected a server's address in rpc_config or the environment; {variable} is not set")
    return str(value)


def _exporter(export_func: Export | str, output_format: str | None) -> tuple[Export, str]:
    """What writes the file, and its extension."""
    if export_func == "tar":
        return lambda mod, path: mod.export_library(path), "tar"
    if export_func == "ndk":
        return lambda mod, path: mod.export_library(path, ndk.create_shared), "so"
    if not callable(export_func):
        raise InvalidValue(f'expected export_func to be "tar", "ndk" or a function, found {export_func!r}')
    if output_format is None:
        raise InvalidValue("expected output_format, the extension of the file that export_func writes")
    return export_func, output_format


def _run(
    session: Any,
    mod: Module,
    device_type: str,
    args: Sequence[Any],
    config: Any,
    export_func: Export | str,
    output_format: str | None,
) -> tuple[list[Any], BenchmarkResult]:
    export, extension = _exporter(export_func, output_format)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"module.{extension}"
        export(mod, str(path))
        session.upload(str(path))
    try:
        dev = session.device(device_type)
        placed = [_placed(arg, dev) for arg in args]
        loaded = session.load_module(path.name)
        options = {name: getattr(config, name) for name in ("number", "repeat", "min_repeat_ms") if config is not None}
        times = loaded.time_evaluator(loaded.entry_name, dev, **(options or {"number": 3}))(*placed)
        loaded(*placed)
        return [arg.numpy() if isinstance(arg, Tensor) else arg for arg in placed], times
    finally:
        session.remove(path.name)


def _placed(arg: Any, dev: Any) -> Any:
    if isinstance(arg, (np.ndarray, Tensor)):
        return empty(arg.shape, str(arg.dtype), dev).copyfrom(arg)
    if isinstance(arg, (int, float)):
        return arg
    raise TypeMismatch(f"expected an array or a number, found {type(arg).__name__}")
