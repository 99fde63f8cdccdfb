"""Runs the cells of a document in order, in one namespace, as a notebook does: `python run_cells.py 003 results.json`.

With a device as a third argument, the cells for a CUDA device (`NN.cuda.py`) run as well: on an OpenCL, a Vulkan or a WebGPU device
(`opencl`, `vulkan`, `webgpu`), or on a CUDA device (`cuda`), which is the host where there is no GPU.

The folder of a document has its cells (`NN.py`) and `checks.py`: `set_up(names)` gives the namespace what the document
takes from elsewhere, `before_NN(names)` what it changes before a cell, `REPLACED` texts of a cell that are replaced, and
`check_NN_...(names, printed)` asserts what holds after a cell. The results are one error or null for each cell and check,
and what each cell printed.
"""

from __future__ import annotations

import codeop
import contextlib
import importlib.util
import io
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import oneir
from oneir.compat import install
from oneir.testing.cuda_host import cuda_on_host

FOLDER = Path(__file__).parent


def load_checks(document: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("checks", FOLDER / document / "checks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error_of(action: Callable[[], Any]) -> str | None:
    try:
        action()
    except Exception:
        return traceback.format_exc()
    return None


def for_device(text: str, device: str) -> str:
    """A cell for CUDA as one for another kind of device."""
    return text.replace('"cuda"', f'"{device}"').replace("tvm.cuda()", f"tvm.{device}()")


def run_cells(document: str, device: str | None = None) -> dict[str, Any]:
    install()
    checks = load_checks(document)
    names: dict[str, Any] = {"__name__": "__main__"}
    checks.set_up(names)
    errors: dict[str, str | None] = {}
    printed: dict[str, str] = {}
    # Keeps `from __future__ import annotations` for the cells that follow, as notebooks do.
    compiled = codeop.Compile()
    cells = sorted((FOLDER / document).glob("[0-9][0-9].py" if device is None else "[0-9][0-9]*.py"))
    for path in cells:
        cell, text = path.stem, path.read_text(encoding="utf-8")
        for old, new in getattr(checks, "REPLACED", {}).get(cell, {}).items():
            assert old in text, f"cell {cell} has no {old}"
            text = text.replace(old, new) if device is None else text
        text = text if device is None else for_device(text, device)
        getattr(checks, f"before_{cell}", lambda names: None)(names)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            errors[cell] = error_of(lambda: exec(compiled(text, str(path), "exec"), names))
        printed[cell] = out.getvalue()
        for name, check in vars(checks).items():
            if name.startswith(f"check_{cell}_"):
                errors[name] = error_of(lambda: check(names, printed[cell]))
    return {"errors": errors, "printed": printed}


if __name__ == "__main__":
    on_host = "cuda" in sys.argv[3:] and not oneir.cuda().exist
    on_device = cuda_on_host() if on_host else contextlib.nullcontext()
    with on_device:
        Path(sys.argv[2]).write_text(json.dumps(run_cells(sys.argv[1], *sys.argv[3:])))
