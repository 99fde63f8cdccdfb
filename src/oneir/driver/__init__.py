"""The front door: `build` and `compile` turn modules into functions that can be called, `load` model files."""

from ..relax import vm_build
from ..target import codegen
from .build import build
from .compile import compile
from .graph import build_graph, emit_graphs, link_program
from .load import load

__all__ = ["build", "compile", "load"]

codegen.build.provide(build)
vm_build.build_graph.provide(build_graph)
vm_build.emit_graphs.provide(emit_graphs)
vm_build.link_program.provide(link_program)
