"""From a `torch.export.ExportedProgram` to a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.expr import PrimExpr, SizeVar
from ....ir.expr import Var as PrimVar
from ....ir.module import IRModule
from ....runtime.error import OneIRError, TypeMismatch, UnsupportedError
from ....tir.analysis.detect_buffer_access_lca import variables
from ...expr import Tuple as GraphTuple
from ...expr import Var
from ...struct_info import ShapeStructInfo, TensorStructInfo
from ..common import PARAMS
from . import operators
from .dtypes import dtype_name
from .importer import Importer, fields_of, is_tensor, share
from .registry import Refused
from .symbolic import as_prim_expr

_ADVICE = (
    "What to do: let PyTorch break operators into smaller ones, with from_exported_program(..., "
    "run_ep_decomposition=True); write them with operators that can be imported; or give custom_convert_map={"
    '"operator": convert}, where convert(node, importer) returns the result of importer.emit(...).'
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
    What the program writes into its inputs and buffers is not given back.
    `run_ep_decomposition` has PyTorch break operators into those of its core before.

    Raises `UnsupportedError`, which names all operators that cannot be imported and the lines that they come from.
    """
    if not hasattr(exported_program, "graph_signature"):
        raise TypeMismatch(
            f"expected a torch.export.ExportedProgram, found {type(exported_program).__name__}: call "
            "torch.export.export(model, example_args) first, or use from_fx for a torch.fx.GraphModule"
        )
    if run_ep_decomposition:
        exported_program = exported_program.run_decompositions()
    elif operators.mutates_through_views(exported_program.graph):
        # What is written through a view is seen in its base; without decompositions, only that is rewritten.
        exported_program = exported_program.run_decompositions({})
    importer = _ProgramImporter(exported_program, custom_convert_map, keep_params_as_input)
    return importer.run(unwrap_unit_return_tuple, no_bind_return_tuple)


def _extents_of(var: Var) -> list[PrimExpr]:
    """The extents of a tensor, the numbers of a shape."""
    info = var.struct_info
    if isinstance(info, TensorStructInfo):
        return list(info.extents or ())
    return list(info.values or ()) if isinstance(info, ShapeStructInfo) else []


class _ProgramImporter(Importer):
    """Imports one exported program."""

    def __init__(self, program: Any, custom: dict[str, Callable[..., Any]] | None, keep_params: bool):
        super().__init__(custom)
        self.program, self.keep_params = program, keep_params
        self.symbols: dict[str, PrimExpr] = {}
        self.inputs: list[Var] = []
        self.weights: list[tuple[Var, Any]] = []

    def run(self, unwrap: bool, no_bind: bool) -> IRModule:
        self.read_placeholders()
        attrs: dict[str, Any] = {}
        if self.keep_params:
            attrs = {"num_input": len(self.inputs)}
        with self.builder.function("main", [*self.inputs, *(var for var, _ in self.weights)], attrs):
            output: Any = None
            with self.builder.dataflow():
                for node in self.program.graph.nodes:
                    if node.op == "output":
                        self.report("exported program", _ADVICE)
                        output = self.output(node.args[0], unwrap, no_bind)
                    elif node.op != "placeholder":
                        self.convert(node)
            self.builder.emit_func_output(output)
        mod = self.builder.finalize()
        if self.keep_params:
            (gvar,) = mod.get_global_vars()
            params = [share(data) for _, data in self.weights]
            mod = mod.replace(functions={gvar: mod[gvar].with_attr(PARAMS, params)})
        return mod

    def read_placeholders(self) -> None:
        """Inputs and weights, each as what its node stands for."""
        nodes = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        for spec in self.program.graph_signature.input_specs:
            node = nodes.get(spec.arg.name)
            if node is None:
                continue
            try:
                self.env[node] = self.placeholder(node, spec)
            except OneIRError as error:
                self.refuse(node, spec.kind.name.lower().replace("_", " "), str(error))
        self.refuse_unsolved(nodes)

    def refuse_unsolved(self, nodes: dict[str, Any]) -> None:
        """Inputs do not tell the value of a symbol that stands alone in no extent, such as that of `2 * n`."""
        told = {e for var in self.inputs for e in _extents_of(var) if isinstance(e, PrimVar)}
        for var in self.inputs:
            for extent in _extents_of(var):
                if variables(extent) - told:
                    reason = f"no input has the symbol of the extent `{extent}` as an extent of its own; export with "
                    self.refuse(nodes[var.name], "user input", reason + "a Dim without factors and offsets")

    def placeholder(self, node: Any, spec: Any) -> Any:
        if spec.kind.name == "USER_INPUT":
            return self.user_input(node)
        state, constants = self.program.state_dict, self.program.constants
        data = state[spec.target] if spec.target in state else constants[spec.target]
        if not hasattr(data, "data_ptr"):
            return data
        if spec.kind.name != "PARAMETER" or not self.keep_params:
            return self.constant(data, spec.target)
        var = Var(node.name, TensorStructInfo(tuple(data.shape), dtype_name(data.dtype)))
        self.weights.append((var, data))
        return var

    def user_input(self, node: Any) -> Any:
        """An input: a tensor, an integer that may vary, or the value that was exported."""
        example = node.meta.get("val")
        if hasattr(example, "dtype") and hasattr(example, "shape"):
            shape = self.extents(example)
            var = Var(node.name, TensorStructInfo(shape, dtype_name(example.dtype)))
            self.inputs.append(var)
            return var
        if type(example).__name__ == "SymInt":
            symbol = self.symbols.setdefault(str(example), SizeVar(str(example), "int64"))
            self.inputs.append(Var(node.name, ShapeStructInfo([symbol])))
            return symbol
        return example

    def extents(self, example: Any) -> list[Any]:
        """The shape of an example, symbolic integers as expressions."""
        return [as_prim_expr(extent, self.symbols) for extent in example.shape]

    def convert(self, node: Any) -> None:
        if node.op == "get_attr":
            self.env[node] = self.attribute(node)
            return
        if self.depends_on_refused(node):
            self.stand_in(node)
            return
        name, overload = operators.name_of(node.target)
        example = node.meta.get("val")
        of_tensor = hasattr(example, "dtype") and hasattr(example, "shape")
        self.expected = self.extents(example) if of_tensor else None
        self.call(node, name, overload, node.args, node.kwargs)
        if node in self.env:
            try:
                self.env[node] = self.verified(self.env[node], example)
            except (Refused, OneIRError) as error:
                self.refuse(node, f"{name}.{overload}", str(error))
                del self.env[node]
        if node not in self.env:
            self.stand_in(node)
            return
        written = node
        while operators.is_in_place(written.target):
            written = written.args[0]
            self.env[written] = self.env[node]

    def verified(self, value: Any, example: Any) -> Any:
        """A value, refused if it has not the shape and dtype that PyTorch says.

        Where shapes are symbolic, PyTorch may know more of them: then that is asserted when the program runs.
        """
        if isinstance(example, (list, tuple)):
            parts = fields_of(value)
            checked = [self.verified(part, expected) for part, expected in zip(parts, example, strict=False)]
            return value if all(a is b for a, b in zip(parts, checked, strict=False)) else tuple(checked)
        if not is_tensor(value) or not hasattr(example, "dtype"):
            return value
        info, dtype = self.info(value), dtype_name(example.dtype)
        expected = self.extents(example)
        found = None if info.extents is None else self.shape(value)
        static = [
            (a, b) for a, b in zip(found or (), expected, strict=False) if isinstance(a, int) and isinstance(b, int)
        ]
        if info.dtype != dtype or info.ndim not in (-1, len(expected)) or any(a != b for a, b in static):
            raise Refused(
                f"the importer does not know this use of the operator: it gives {info.dtype} of shape "
                f"{found or info.ndim}, but PyTorch {dtype} of shape {expected}"
            )
        if found is not None and all(map(self.builder.analyzer.can_prove_equal, found, expected)):
            return value
        return self.builder.match_cast(value, TensorStructInfo(expected, dtype))

    def attribute(self, node: Any) -> Any:
        """A tensor that the graph module holds."""
        value = self.program.graph_module
        for part in node.target.split("."):
            value = getattr(value, part)
        return self.constant(value) if hasattr(value, "data_ptr") else value

    def stand_in(self, node: Any) -> None:
        """A value for a node that was refused, so that what uses it is looked at too."""
        example = node.meta.get("val")
        if not hasattr(example, "dtype") or not hasattr(example, "shape"):
            return
        try:
            self.env[node] = Var(node.name, TensorStructInfo(self.extents(example), dtype_name(example.dtype)))
        except UnsupportedError:
            return  # of a dtype that there is no counterpart of

    def output(self, values: Any, unwrap: bool, no_bind: bool) -> Any:
        specs = self.program.graph_signature.output_specs
        results = [self.value(v) for v, spec in zip(values, specs, strict=True) if spec.kind.name == "USER_OUTPUT"]
        if unwrap and len(results) == 1:
            return self.builder.emit_output(results[0])
        if no_bind:
            return GraphTuple([self.builder.emit_output(r) for r in results])
        return self.builder.emit_output(GraphTuple(results))
