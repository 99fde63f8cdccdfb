"""LLVM in a process of its own, for targets whose code generators end the process over what they cannot select.

assembly_for(ir, triple="nvptx64-nvidia-cuda", cpu="sm_80")
"""

from __future__ import annotations

import json
import subprocess
import sys

from .error import CompileError

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
