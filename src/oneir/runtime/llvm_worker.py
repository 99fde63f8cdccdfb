"""LLVM in processes of its own.

with Helper() as helper:                                       # takes work off a process that compiles much
    data = helper.compile_ir("define i32 @next(i32 %x) { ... }", name="demo")

assembly_for(ir, triple="nvptx64-nvidia-cuda", cpu="sm_80")    # survives code generators that end the process
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from . import llvm
from .child import Child
from .error import CompileError

_HELPER = """
from oneir.runtime.error import CompileError
from oneir.runtime.llvm import compile_ir, host_cpu
host_cpu()
def answer(text, options):
    try:
        return compile_ir(text, **options)
    except CompileError as error:
        return str(error)
"""


class Helper:
    """A process that compiles for this one, in which llvmlite lets one thread at a time into LLVM.

    It starts with the first text. One thread uses it at a time. Where no process can be started, this one compiles.
    """

    def __init__(self) -> None:
        self._child: Child | None = None
        self._is_missing = False

    def compile_ir(self, text: str, **options: Any) -> bytes:
        """What `llvm.compile_ir` returns. Raises `CompileError`, also where LLVM ends the process over the text."""
        child = self._child or self._start()
        if child is None:
            return llvm.compile_ir(text, **options)
        try:
            answer = child.ask(text, options)
        except (OSError, EOFError) as error:
            status = child.status()
            self.close()
            name = options.get("name")
            raise CompileError(f"the process in which LLVM compiles {name} ended with the status {status}") from error
        if isinstance(answer, str):
            raise CompileError(answer)
        return answer

    def _start(self) -> Child | None:
        """The process; None where there is none."""
        if not self._is_missing:
            try:
                self._child = Child(_HELPER, bare=True)
            except OSError:
                self._is_missing = True
        return self._child

    def close(self) -> None:
        """Ends the process."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_WORKER = """
import json, sys
request = json.load(sys.stdin)
sys.path[:] = request["path"]
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
try:
    target = llvm.Target.from_triple(request["triple"])
    machine = target.create_target_machine(cpu=request["cpu"], opt=3, reloc="static", codemodel="default")
    module = llvm.parse_assembly(request["text"])
    module.triple, module.data_layout = request["triple"], str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    json.dump({"assembly": machine.emit_assembly(module)}, sys.stdout)
except RuntimeError as error:
    json.dump({"error": str(error)}, sys.stdout)
"""


def assembly_for(text: str, triple: str, cpu: str) -> str:
    """The assembly of LLVM IR for a processor. Raises `CompileError` for what LLVM does not take."""
    if not sys.executable:
        raise CompileError(f"code for {triple} is made in another process, and there is no Python to start one with")
    request = {"path": sys.path, "text": text, "triple": triple, "cpu": cpu}
    command = [sys.executable, "-I", "-S", "-c", _WORKER]
    answer = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    if f"{cpu!r} is not a recognized processor" in answer.stderr:
        raise CompileError(f"LLVM knows no processor {cpu!r} for {triple}; name another with -mcpu")
    if answer.returncode or not answer.stdout:
        errors = [line for line in answer.stderr.splitlines() if "LLVM ERROR" in line or "error:" in line]
        reason = (errors or answer.stderr.strip().splitlines() or ["it ended without a word"])[0]
        raise CompileError(f"LLVM cannot make code for {triple}, {cpu}: {reason.removeprefix('LLVM ERROR: ')}")
    found = json.loads(answer.stdout)
    if "error" in found:
        raise CompileError(f"LLVM does not take a program for {triple}, {cpu}: {found['error']}")
    return found["assembly"]
