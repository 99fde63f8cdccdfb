"""From a `torch.export.ExportedProgram` to a module."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.expr import Var as PrimVar
from ....ir.module import IRModule
from ....runtime.error import TypeMismatch, UnsupportedError
from ...expr import Tuple as GraphTuple
from ...expr import Var
from ...op.base import null_value
from ...struct_info import TensorStructInfo
from ..common import attach_params
from . import operators
from .aten import AtenImporter, is_complex
from .converters.complex import view_as_complex, view_as_real
from .dtypes import dtype_name
from .importer import Pair, share

_ADVICE = (
    "What to do: write the model with operators that can be imported, compute this part outside of the model, or give "
    'custom_convert_map={"operator": convert}, where convert(node, importer) returns the result of importer.emit(...).'
)


def from_exported_program(
    exported_program: Any,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: dict[str, Callable[..., Any]] | None = None,
    run_ep_decomposition: bool = False,
) -> IRModule:
    """A module whose function `main` computes what the exported program does.

    Its parameters are the program's inputs. Weights become constants, over the memory that they are in; with
    `keep_params_as_input` they become parameters after the inputs (the function's attribute `num_input` is the number
    of inputs), and their values its attribute "params", which `relax.frontend.detach_params` takes off. Buffers are
    constants either way. The result is a tuple, as PyTorch's is; with `unwrap_unit_return_tuple`, a tuple of one value
    is that value, and with `no_bind_return_tuple` the values get variables and the tuple gets none.
    What the program writes into its inputs and buffers is not given back; for buffers, a warning says so.
    Complex inputs and results are tensors of their real and imaginary parts, in a last dimension of 2, as
    `torch.view_as_real` gives them.
    Symbolic extents have the names of their `torch.export.Dim`; files keep no names, so those of a program that was
    loaded are called by the input and the dimension that they are of, such as x_dim0.

    PyTorch breaks operators that cannot be imported into smaller ones; with `run_ep_decomposition`, all that are not of
    its core.

    Raises `UnsupportedError`, which names all operators that cannot be imported and the lines that they come from.
    """
    if not hasattr(exported_program, "graph_signature"):
        raise TypeMismatch(
            f"expected a torch.export.ExportedProgram, found {type(exported_program).__name__}: call "
            "torch.export.export(model, example_args) first, or use from_fx for a torch.fx.GraphModule"
        )
    if run_ep_decomposition:
        exported_program = exported_program.run_decompositions()
    elif operators.mutates_through_views(exported_program.graph) or operators.uses_vmap(exported_program.graph):
        # What is written through a view is seen in its base, and what `torch.vmap` maps has its batch dimension;
        # without decompositions, only that is rewritten.
        exported_program = exported_program.run_decompositions({})
    broken: dict[Any, Callable[..., Any]] = {}
    while True:
        importer = ExportedProgramImporter(exported_program, custom_convert_map, keep_params_as_input)
        try:
            return importer.run(unwrap_unit_return_tuple, no_bind_return_tuple)
        except UnsupportedError:
            more = operators.decompositions(importer.decomposable() - broken.keys())
            if not more:
                raise
            broken |= more
            try:
                exported_program = exported_program.run_decompositions(dict(broken))
            except Exception:  # what PyTorch cannot break may fail in any way
                exported_program = None
            if exported_program is None:
                raise


class ExportedProgramImporter(AtenImporter):
    """Imports one exported program."""

    model_kind = "exported program"
    advice = _ADVICE

    def __init__(self, program: Any, custom: dict[str, Callable[..., Any]] | None, keep_params: bool):
        super().__init__(program.graph_module, custom)
        self.program, self.keep_params = program, keep_params
        self.weights: list[tuple[Var, Any]] = []

    def run(self, unwrap: bool, no_bind: bool) -> IRModule:
        inputs = self.read_placeholders()
        attrs: dict[str, Any] = {}
        if self.keep_params:
            attrs = {"num_input": len(self.inputs)}
        with self.block_builder.function("main", [*self.inputs, *(var for var, _ in self.weights)], attrs):
            output: Any = None
            with self.body():
                for node in inputs:
                    if is_complex(node):
                        self.env[node] = view_as_complex(self, self.env[node])
                self.assert_inputs(inputs)
                for node in self.program.graph.nodes:
                    if node.op == "output":
                        values = self.results_of(node)
                        self.report()
                        self.warn_of_writes()
                        output = self.output(values, unwrap, no_bind)
                    elif node.op != "placeholder":
                        self.convert(node)
            self.block_builder.emit_func_output(output)
        mod = self.finished()
        return attach_params(mod, [share(data) for _, data in self.weights]) if self.keep_params else mod

    def read_placeholders(self) -> list[Any]:
        """Gives inputs and weights their values; returns the nodes of the inputs."""
        nodes = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        inputs: list[Any] = []
        for spec in self.program.graph_signature.input_specs:
            node = nodes.get(spec.arg.name)
            if node is None:
                continue
            if spec.kind.name == "USER_INPUT":
                inputs.append(node)
                continue
            if spec.kind.name == "TOKEN":
                # What keeps operators with effects in order: that of the bindings does, so any value will do.
                self.env[node] = 0
                continue
            with self.reporting(node, spec.kind.name.lower().replace("_", " ")):
                self.env[node] = self.weight(node, spec)
        for node in inputs:
            for i, extent in enumerate(getattr(node.meta.get("val"), "shape", ())):
                self.symbols.name_by_place(extent, f"{node.name}_dim{i}")
        self.read_inputs(inputs)
        return inputs

    def input(self, node: Any, solved: dict[str, tuple[PrimVar, PrimExpr]]) -> Any:
        """The parameter of an input; that of a complex one has its parts in a last dimension."""
        if not is_complex(node):
            return super().input(node, solved)
        example = node.meta["val"]
        return self.tensor_input(node, [*example.shape, 2], example.dtype.to_real(), solved)

    def results_of(self, node: Any) -> Any:
        """The values that the program returns; complex ones as their parts."""
        made = self.value(node.args[0])
        return type(made)(view_as_real(self, v) if isinstance(v, Pair) else v for v in made)

    def warn_of_writes(self) -> None:
        """Says which buffers the program writes into, since a later call does not see that."""
        signature = self.program.graph_signature
        names = {spec.target for spec in signature.output_specs if spec.kind.name == "BUFFER_MUTATION"}
        buffers = {spec.arg.name: spec.target for spec in signature.input_specs if spec.kind.name == "BUFFER"}
        for node in self.program.graph.nodes:
            if operators.is_in_place(node.target):
                written = operators.written_by(node)
                names |= {buffers[written.name]} if written.name in buffers else set()
        if names:
            warnings.warn(
                f"the program writes into its buffers {', '.join(sorted(names))}; what it writes is not kept, and each "
                "call starts from the values that they have now. What to do: make them inputs of the model, and return "
                "their new values; or call the model by torch.compile, which writes them.",
                UserWarning,
                stacklevel=4,
            )

    def weight(self, node: Any, spec: Any) -> Any:
        """A parameter, buffer or constant of the model."""
        state, constants = self.program.state_dict, self.program.constants
        data = state[spec.target] if spec.target in state else constants.get(spec.target)
        if not hasattr(data, "data_ptr"):
            return data
        if spec.kind.name != "PARAMETER" or not self.keep_params:
            return self.shared_constant(data, spec.target)
        var = Var(node.name, TensorStructInfo(tuple(data.shape), dtype_name(data.dtype)))
        self.weights.append((var, data))
        return var

    def output(self, values: Any, unwrap: bool, no_bind: bool) -> Any:
        specs = self.program.graph_signature.output_specs
        results = [
            null_value() if v is None else v
            for v, spec in zip(values, specs, strict=True)
            if spec.kind.name == "USER_OUTPUT"
        ]
        if unwrap and len(results) == 1:
            return self.result(results[0])
        if no_bind:
            return GraphTuple([self.result(r) for r in results])
        return self.result(GraphTuple(results))
