"""From a module that `torch.fx` traced to a module of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....ir.module import IRModule
from ....runtime.error import InvalidValue, TypeMismatch, UnsupportedError
from ...expr import Expr, ShapeExpr, Var
from ...expr import Tuple as GraphTuple
from ...struct_info import TensorStructInfo
from ..common import attach_params
from .converters.modules import call_module
from .dtypes import dtype_name
from .importer import Importer, share
from .registry import find_converter

_ADVICE = (
    "What to do: import the model by torch.export.export and from_exported_program, which knows more operators; trace "
    'into the module; or give custom_convert_map={"operator": convert} (or the class of a module as the key), where '
    "convert(node, importer) returns the result of importer.emit(...)."
)


def from_fx(
    model: Any,
    input_info: Sequence[tuple[Sequence[Any], str]],
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: dict[Any, Callable[..., Any]] | None = None,
) -> IRModule:
    """A module whose function `main` computes what a `torch.fx.GraphModule` does, in inference.

    `input_info` has the shape and dtype of each input; they are called inp_0, inp_1, ... An extent is an integer, a
    symbolic variable, or the name of one, as in ("n", 3). Weights become constants, over the memory that they are in;
    with `keep_params_as_input` they become parameters after the inputs, in the order of their names (the function's
    attribute `num_input` is the number of inputs), and their values its attribute "params", which
    `relax.frontend.detach_params` takes off. With `unwrap_unit_return_tuple`, a tuple of one value is that value; with
    `no_bind_return_tuple` the values of a tuple get variables and the tuple gets none. `custom_convert_map` has
    converters by the name of the function or method, or the class of the module: `convert(node, importer)`.

    Raises `UnsupportedError`, which names all operators that cannot be imported and the lines that they come from.
    """
    if not hasattr(model, "graph"):
        raise TypeMismatch(
            f"expected a torch.fx.GraphModule, found {type(model).__name__}: call torch.fx.symbolic_trace(model) "
            "first, or use from_exported_program"
        )
    importer = TorchFXImporter(model, input_info, custom_convert_map or {}, keep_params_as_input)
    return importer.run(unwrap_unit_return_tuple, no_bind_return_tuple)


# Functions and methods whose result may share the memory of their argument.
_VIEWS = frozenset(
    {
        "chunk",
        "contiguous",
        "detach",
        "expand",
        "expand_as",
        "flatten",
        "getitem",
        "movedim",
        "narrow",
        "permute",
        "reshape",
        "select",
        "split",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unsqueeze",
        "view",
        "view_as",
    }
)


class TorchFXImporter(Importer):
    """Imports one traced module.

    `weights` are the names and data of the placeholders that stand for weights, by their place among the placeholders.
    """

    model_kind = "traced module"
    advice = _ADVICE

    def __init__(
        self,
        model: Any,
        input_info: Sequence[tuple[Sequence[Any], str]],
        custom: dict[Any, Callable[..., Any]],
        keep_params: bool,
        weights: Mapping[int, tuple[str, Any]] | None = None,
    ):
        super().__init__({name: convert for name, convert in custom.items() if isinstance(name, str)})
        self.custom_modules = {kind: convert for kind, convert in custom.items() if not isinstance(kind, str)}
        self.model, self.keep_params = model, keep_params
        self.written: dict[Any, Any] = {}
        self.modules = dict(model.named_modules())
        names = {extent for shape, _ in input_info for extent in shape if isinstance(extent, str)}
        symbols = {name: self.symbols.fresh(name) for name in sorted(names)}
        self.inputs = [
            Var(f"inp_{i}", TensorStructInfo([symbols.get(e, e) for e in shape], dtype_name(dtype)))
            for i, (shape, dtype) in enumerate(input_info)
        ]
        self.weights: dict[int, tuple[Var, Any]] = {}
        self.given = dict(weights or {})
        if keep_params:
            named = [
                *model.named_parameters(),
                *((n, w) for n, w in self.given.values() if type(w).__name__ == "Parameter"),
            ]
            for name, data in sorted(named, key=lambda pair: pair[0]):
                var = Var(name, TensorStructInfo(tuple(data.shape), dtype_name(data.dtype)))
                self.weights[id(data)] = (var, data)

    def run(self, unwrap: bool, no_bind: bool) -> IRModule:
        placeholders = [node for node in self.model.graph.nodes if node.op == "placeholder"]
        self.env.update((placeholders[i], self.parameter(data)) for i, (_, data) in self.given.items())
        placeholders = [node for i, node in enumerate(placeholders) if i not in self.given]
        if len(placeholders) != len(self.inputs):
            raise InvalidValue(
                f"the traced module has {len(placeholders)} inputs ({', '.join(p.name for p in placeholders)}), "
                f"input_info describes {len(self.inputs)}"
            )
        self.env.update(zip(placeholders, self.inputs, strict=True))
        attrs = {"num_input": len(self.inputs)} if self.keep_params else {}
        weights = [var for var, _ in self.weights.values()]
        with self.block_builder.function("main", [*self.inputs, *weights], attrs):
            output: Any = None
            with self.block_builder.dataflow():
                for node in self.model.graph.nodes:
                    if node.op == "output":
                        self.report()
                        output = self.output(self.returned(node.args[0]), unwrap, no_bind)
                    elif node.op != "placeholder" and not self.depends_on_missing(node):
                        self.convert(node)
            self.block_builder.emit_func_output(output)
        mod = self.block_builder.finalize()
        return attach_params(mod, [share(data) for _, data in self.weights.values()]) if self.keep_params else mod

    def parameter(self, data: Any) -> Expr:
        """A weight as a parameter of the function, or a constant."""
        known = self.weights.get(id(data))
        return self.shared_constant(data) if known is None else known[0]

    def convert(self, node: Any) -> None:
        if node.op == "get_attr":
            value: Any = self.model
            for part in node.target.split("."):
                value = getattr(value, part)
            self.env[node] = self.parameter(value) if hasattr(value, "data_ptr") else value
        elif node.op == "call_module":
            self.convert_module(node, self.modules[node.target])
        else:
            name = node.target if node.op == "call_method" else _function_name(node.target)
            self.call(node, name, "", node.args, node.kwargs)
            in_place = name.endswith("_") and not name.endswith("__") and find_converter(name[:-1]) is not None
            if in_place or node.kwargs.get("inplace"):
                self.write(node)

    def convert_module(self, node: Any, module: Any) -> None:
        custom = self.custom_modules.get(type(module))
        kind = type(module)
        with self.reporting(node, f"{kind.__module__}.{kind.__qualname__} ({node.target})"):
            if custom is not None:
                self.env[node] = custom(node, self)
            else:
                self.env[node] = call_module(self, module, self.value(node.args), self.value(node.kwargs))
                if getattr(module, "inplace", False):
                    self.write(node)

    def write(self, node: Any) -> None:
        """Gives what a node writes into, and what that was written into before, the new value."""
        written = node.args[0]
        if _function_name(written.target) in _VIEWS or any(
            _function_name(user.target) in _VIEWS and user in self.env for user in written.users
        ):
            error = UnsupportedError("a write into what shares memory with other values")
            self.add_unsupported(node, _function_name(node.target), error)
        if node in self.env:
            self.written[node] = written
            while written is not None:
                self.env[written] = self.env[node]
                written = self.written.get(written)

    def returned(self, result: Any) -> Any:
        """What the module returns; all extents of a tensor (`x.shape`) are a shape."""
        value = self.value(result)
        return ShapeExpr(value) if isinstance(value, list) and not isinstance(result, list) else value

    def output(self, result: Any, unwrap: bool, no_bind: bool) -> Any:
        if isinstance(result, dict):
            result = tuple(result.values())
        if not isinstance(result, (tuple, list)):
            return self.block_builder.emit_output(result)
        if unwrap and len(result) == 1:
            return self.block_builder.emit_output(result[0])
        if no_bind:
            return GraphTuple([self.block_builder.emit_output(r) for r in result])
        return self.block_builder.emit_output(_as_tuple(result))


def _as_tuple(values: Any) -> Any:
    """Nested tuples and lists as tuples."""
    return GraphTuple([_as_tuple(v) if isinstance(v, (tuple, list)) else v for v in values])


def _function_name(target: Any) -> str:
    """The name under which a function is known: `torch.nn.functional.relu` and `operator.add` by their last parts."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return schema.name.split("::")[-1]
    return getattr(target, "__name__", str(target))
