"""From an ONNX model to a module: the walk over its graph, and the report of what cannot be imported."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....ir.expr import IntImm
from ....ir.module import IRModule
from ....runtime.error import InternalError, InvalidValue, OneIRError, UnsupportedError
from ....runtime.tensor import wrap_array
from ....tir.analysis import undefined_vars
from ...analysis import remove_all_unused
from ...expr import OUTPUT_NAMES, Constant, Expr, Tuple, Var
from ...struct_info import TensorStructInfo
from ..common import PARAMS
from ..importer import call_converter, without_unused
from . import shape_values
from .context import Context
from .dtypes import STRING, dtype_name, extents_of
from .functions import body_of, defaults, schema_of
from .model import read_model, with_rest
from .objects import as_object, constant_of, declared_kind, kind_of, object_var
from .registry import MISSING, NeedsControlFlow, RanksDiffer, find_converter
from .tensors import array_of

if TYPE_CHECKING:
    import onnx

_ADVICE = (
    "export the model with operators that can be imported (another opset_version, or without the layers named here), "
    "or rewrite these nodes, for instance with onnxscript or onnx.compose, before the import."
)
_OF_SHAPES = re.compile(r"extent|dimension|shape")
OLDEST_OPSET = 1
MOST_CONTINUED = 4
"""The most conditions inside of one another whose branches have the rest of their graphs: each doubles the program."""


def from_onnx(
    model: onnx.ModelProto | str | Path,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """A module whose function `main` computes what an ONNX model does.

    `model` is an `onnx.ModelProto`, or the path of a file, next to which tensors may lie that it refers to.
    Parameters of `main` are the model's inputs, the result is its output, or a tuple of several. Inputs have the
    shapes of `shape_dict` (by name; integers, names, or symbolic variables), else those that the model says; a
    dimension with a name is a symbolic variable. `dtype_dict` gives dtypes of inputs by name; a text is that of inputs
    which the model gives none. `opset` is taken in place of the model's own.
    Weights become constants; with `keep_params_in_input` they become parameters after the inputs (the function's
    attribute `num_input` is the number of inputs), and their values its attribute "params", which
    `relax.frontend.detach_params` takes off. What shapes depend on stays constant.
    With `sanitize_input_names`, names of parameters are identifiers.

    Raises `UnsupportedError`, which names all nodes that cannot be imported, and `InvalidValue` for a damaged model.
    """
    loaded, folder = read_model(model)
    for dataflow in (True, False):
        importer = Importer(loaded, folder, shape_dict or {}, dtype_dict, opset)
        try:
            return importer.run(keep_params_in_input, sanitize_input_names, dataflow)
        except NeedsControlFlow:
            continue
    raise InternalError("conditions may stand outside of dataflow blocks")


class Importer(Context):
    """Imports one model; `env` has the values of the names of the graph that is imported."""

    node_kind = "part"
    advice = _ADVICE

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path | None,
        shapes: Mapping[str, Sequence[Any]],
        dtypes: str | Mapping[str, str] | None,
        opset: int | None,
    ):
        super().__init__()
        self.model, self.folder, self.shapes = model, folder, shapes
        self.dtypes: Mapping[str, str] = dtypes if isinstance(dtypes, Mapping) else {}
        self.default_dtype = dtypes if isinstance(dtypes, str) else "float32"
        self.opsets = _opsets(model.opset_import)
        if opset is not None:
            self.opsets[""] = opset
        self.functions = {(_domain(f.domain), f.name): f for f in model.functions}
        self.arguments: Mapping[str, Any] = {}
        """The attributes of the call whose function's body is imported, by name."""
        self.declared: dict[str, Any] = {}
        self.input_infos: dict[str, TensorStructInfo] = {}
        self.input_symbols: set[Any] = set()
        """The extents of inputs that are variables."""
        self.continued = 0
        """The number of conditions around, whose branches have the rest of their graphs."""

    def run(self, keep_params: bool, sanitize: bool, dataflow: bool) -> IRModule:
        """The module; without conditions that stay in the program, `main` can be one dataflow block."""
        self.check_opsets()
        graph = self.model.graph
        inputs, weights = self.read_inputs(graph, sanitize), self.read_weights(graph, keep_params, sanitize)
        if not self.shapes:
            # The shapes that a model declares of values hold for the inputs that it declares.
            self.declared = {v.name: v.type for v in (*graph.value_info, *graph.output)}
        attrs = {"num_input": len(inputs), OUTPUT_NAMES: [value.name for value in graph.output]}
        with self.block_builder.function("main", [*inputs, *weights], attrs):
            self.block_builder.switch_block(dataflow)
            self.run_nodes(graph.node, [value.name for value in graph.output])
            self.report()
            outputs = [self.output(value.name) for value in graph.output]
            if not outputs:
                raise InvalidValue("the model has no outputs")
            result = outputs[0] if len(outputs) == 1 else Tuple(outputs)
            if dataflow:
                result = self.block_builder.emit_output(result)
                self.block_builder.switch_block(False)
            self.block_builder.emit_func_output(result)
        return self.finished(weights, dataflow)

    def finished(self, weights: list[Var], dataflow: bool) -> IRModule:
        """The module without bindings that only shapes were computed from, with the values of its parameters."""
        mod = self.block_builder.finalize()
        gvar = mod.get_global_var("main")
        func: Any = mod[gvar]
        constants = {v: wrap_array(self.parameters[v]) for v in weights if v in self.used_as_constants}
        func = remove_all_unused(func.bind_params(constants))
        kept = [v for v in weights if v not in constants]
        if kept:
            func = func.with_attr(PARAMS, [wrap_array(self.parameters[v]) for v in kept])
        if self.may_fail:
            func = func.replace(is_pure=False)
        mod = mod.replace(functions={**mod.functions, gvar: func})
        return mod if dataflow else without_unused(mod)

    def advised(self) -> str:
        """What the user can do: give shapes, where these are what is missing, and which inputs lack them."""
        shapes = ""
        if any(_OF_SHAPES.search(str(u.error)) for u in self.unsupported):
            open_inputs = [
                f'"{name}": ({", ".join(map(_number_or_name, info.extents or ()))})'
                for name, info in self.input_infos.items()
                if any(map(undefined_vars, info.extents or ()))
            ]
            if open_inputs:
                given = ", ".join(open_inputs)
                shapes = f"give numbers for the extents that must be known, shape_dict={{{given}}}; "
        return f"What to do: {shapes}{self.advice}"

    # -- inputs and weights --

    def check_opsets(self) -> None:
        """Raises `UnsupportedError` for opsets that are older or newer than those of the package onnx."""
        import onnx

        newest, opset = onnx.defs.onnx_opset_version(), self.opsets.get("")
        if opset is not None and not OLDEST_OPSET <= opset <= newest:
            raise UnsupportedError(
                f"the model is of opset {opset}; with onnx {onnx.__version__}, opsets {OLDEST_OPSET} to {newest} can "
                f"be imported. What to do: onnx.version_converter.convert_version(model, {newest}), or a newer version "
                "of the package onnx"
            )

    def read_inputs(self, graph: onnx.GraphProto, sanitize: bool) -> list[Var]:
        """The inputs as parameters, without those that have an initializer, which is their default."""
        stored = {w.name for w in graph.initializer}
        given = [value for value in graph.input if value.name not in stored]
        unknown = set(self.shapes) - {value.name for value in graph.input}
        if unknown:
            raise InvalidValue(
                f"shape_dict has {', '.join(sorted(unknown))}; the inputs of the model are "
                f"{', '.join(v.name for v in given) or 'none'}"
            )
        self.symbols.declare(name for value in given for name in self.extent_names(value))
        inputs = [self.read_input(value, sanitize) for value in given]
        self.report()
        return inputs

    def extent_names(self, value: Any) -> list[str]:
        """The texts among the extents of an input."""
        declared = [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        return [e for e in self.shapes.get(value.name, declared) if isinstance(e, str) and e not in ("", "?")]

    def read_input(self, value: Any, sanitize: bool) -> Var:
        name = self.parameter_name(value.name, "input_", sanitize)
        info = TensorStructInfo((), "float32")
        with self.reporting(value.name, "input"):
            tensor = value.type.WhichOneof("value") in ("tensor_type", None)
            if not tensor or value.type.tensor_type.elem_type == STRING:
                kind = declared_kind(self, value.type)
                assert kind is not None
                self.env[value.name] = object_var(self, name, kind)
                return self.env[value.name]
            info = self.input_info(value.name, value.type.tensor_type)
        self.input_infos[value.name] = info
        self.input_symbols.update(v for e in info.extents or () for v in undefined_vars(e))
        var = Var(name, info)
        self.env[value.name] = var
        return var

    def input_info(self, name: str, tensor_type: Any) -> TensorStructInfo:
        """Shape and dtype of an input."""
        dtype = self.dtypes.get(name)
        if dtype is None:
            dtype = dtype_name(tensor_type.elem_type) if tensor_type.elem_type else self.default_dtype
        if name in self.shapes:
            extents = [self.symbols.named(e) if isinstance(e, str) else e for e in self.shapes[name]]
        else:
            extents = extents_of(tensor_type, self.symbols)
        if extents is None:
            raise InvalidValue(
                f"the model does not say how many dimensions the input `{name}` has; give it a shape: "
                f'shape_dict={{"{name}": (1, ...)}}'
            )
        return TensorStructInfo([self.symbols.fresh_extent() if e is None else e for e in extents], dtype)

    def read_weights(self, graph: onnx.GraphProto, keep: bool, sanitize: bool) -> list[Var]:
        """The initializers: constants, or parameters."""
        weights: list[Var] = []
        for tensor in graph.initializer:
            try:
                array = array_of(tensor, self.folder)
            except UnsupportedError as error:
                self.add_unsupported(tensor.name, "initializer", error)
                self.env[tensor.name] = MISSING
                continue
            if not keep:
                self.env[tensor.name] = constant_of(self, array)
                continue
            # Exporters put a prefix before the names of weights.
            name = self.parameter_name(tensor.name.removeprefix("onnx::"), "param_", sanitize)
            var = Var(name, TensorStructInfo(array.shape, dtype_name(tensor.data_type)))
            self.parameters[var] = array
            self.env[tensor.name] = var
            weights.append(var)
        for tensor in graph.sparse_initializer:
            error = UnsupportedError("it is sparse; store it densely")
            self.add_unsupported(tensor.values.name, "initializer", error)
            self.env[tensor.values.name] = MISSING
        return weights

    def parameter_name(self, name: str, prefix: str, sanitize: bool) -> str:
        """The name of a parameter; identifiers are different from all others."""
        if not sanitize:
            return name
        name = re.sub(r"\W", "_", name)
        return self.block_builder.get_unique_name(name if name[:1].isalpha() else prefix + name)

    # -- nodes --

    def run_nodes(self, nodes: Sequence[Any], outputs: Sequence[str]) -> None:
        """Imports the nodes of a graph with these outputs in their order, which is topological in valid models."""
        for i, node in enumerate(nodes):
            try:
                self.convert(node)
            except RanksDiffer:
                self.convert_continued(node, nodes[i + 1 :], outputs)
                return

    def convert_continued(self, node: onnx.NodeProto, rest: Sequence[Any], outputs: Sequence[str]) -> None:
        """Imports a condition on which numbers of dimensions depend, with the rest of its graph in both branches."""
        which = f"depend on the condition `{node.name or node.output[0]}`, which must be known while compiling"
        if self.continued == MOST_CONTINUED:
            raise UnsupportedError(
                f"numbers of dimensions {which}: they depend on {MOST_CONTINUED} others already, and each doubles the "
                "program"
            )
        self.continued += 1
        try:
            self.convert(with_rest(node, rest, outputs))
        except RanksDiffer:
            raise UnsupportedError(f"the numbers of dimensions of {', '.join(outputs)} {which}") from None
        finally:
            self.continued -= 1

    def convert(self, node: onnx.NodeProto) -> None:
        """Imports a node: its outputs get their values, or `MISSING` if it is unsupported."""
        outputs = [name for name in node.output if name]
        before, values = len(self.unsupported), {}
        with self.reporting(node.name or (outputs[0] if outputs else ""), self.operator(node)):
            try:
                values = self.outputs(node)
            except OneIRError:
                raise
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
                # Models that pass ONNX's checker may still misuse an operator.
                reason = f"({type(error).__name__}: {error})"
                raise UnsupportedError(f"inputs or attributes that do not fit together {reason}") from error
            absent = [name for name in outputs if name not in values]
            if absent and len(self.unsupported) == before:
                raise UnsupportedError(f"the importer does not compute the output {', '.join(absent)}")
        if len(self.unsupported) > before:
            values = {}
        self.env.update(values or dict.fromkeys(outputs, MISSING))

    def outputs(self, node: onnx.NodeProto) -> dict[str, Any]:
        """The values of a node's outputs by their names; `MISSING` where an input of the node is."""
        inputs = [self.value(name) for name in node.input]
        if any(x is MISSING for x in inputs) or self.captures_missing(node):
            if not self.knows(node):
                raise _no_converter(self.opset_of(node))
            return dict.fromkeys((name for name in node.output if name), MISSING)
        declared = {} if self.enclosing else self.declared
        found = zip(node.output, self.results(node, inputs), strict=False)
        return {name: self.with_known_shape(value, declared.get(name)) for name, value in found if name}

    def value(self, name: str) -> Any:
        """The value of an input; None where it is left out."""
        if not name:
            return None
        if name not in self.env:
            raise UnsupportedError(f"the input `{name}` is computed by nothing before this node")
        return self.env[name]

    def captures_missing(self, node: onnx.NodeProto) -> bool:
        """Whether a subgraph of a node uses the output of an unsupported node."""
        graphs = [a.g for a in node.attribute if a.HasField("g")]
        used = {name for graph in graphs for inner in _all_nodes(graph) for name in inner.input}
        return any(self.env.get(name) is MISSING for name in used)

    def opset_of(self, node: onnx.NodeProto) -> int:
        """The version of the operators of a node's domain."""
        return self.opsets.get(_domain(node.domain), 1)

    def knows(self, node: onnx.NodeProto) -> bool:
        """Whether a node's operator has a converter or a body."""
        domain, opset = _domain(node.domain), self.opset_of(node)
        if (domain, node.op_type) in self.functions or find_converter(domain, node.op_type, opset) is not None:
            return True
        schema = schema_of(node, opset)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def results(self, node: onnx.NodeProto, inputs: list[Any]) -> Sequence[Any]:
        """The values of a node's outputs."""
        domain, opset = _domain(node.domain), self.opset_of(node)
        if (domain, node.op_type) in self.functions:
            return self.call(node, self.functions[domain, node.op_type], inputs, {})
        function = find_converter(domain, node.op_type, opset)
        schema = schema_of(node, opset)
        if function is None:
            own = self.resolved_attributes(node)
            kinds = [None if x is None else kind_of(self, x) for x in inputs]
            body = None if schema is None else body_of(schema, node, own, opset, kinds)
            if body is None:
                raise _no_converter(opset)
            return self.call(node, body, inputs, {a.name: a for a in defaults(schema, {a.name for a in own})})
        attributes = {a.name: self.attribute(a) for a in node.attribute if self.is_given(a)}
        found = shape_values.evaluated(self, node.op_type, inputs, attributes) if not domain else None
        if found is not None:
            return found
        # Trailing inputs that are left out are not passed at all.
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        outer, self.opset, self.num_outputs = self.opset, opset, sum(1 for name in node.output if name)
        try:
            result = call_converter(function, self, inputs, attributes)
        finally:
            self.opset = outer
        return result if isinstance(result, tuple) else (result,)

    def operator(self, node: onnx.NodeProto) -> str:
        """The operator of a node, with domain and opset."""
        domain = _domain(node.domain)
        return f"{node.op_type} of {domain or 'ai.onnx'} {self.opsets.get(domain, '?')}"

    def is_given(self, attribute: Any) -> bool:
        """Whether an attribute has a value: one that refers to the function's own may have none."""
        return not attribute.ref_attr_name or attribute.ref_attr_name in self.arguments

    def attribute(self, attribute: Any) -> Any:
        """The value of an attribute: numbers, texts, lists of them, arrays, and graphs as they are."""
        import onnx

        if attribute.ref_attr_name:
            attribute = self.arguments[attribute.ref_attr_name]
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, onnx.TensorProto):
            return array_of(value, self.folder)
        if isinstance(value, (str, int, float, onnx.GraphProto, onnx.TypeProto)):
            return value
        if hasattr(value, "DESCRIPTOR"):
            raise UnsupportedError(f"the attribute `{attribute.name}` is a {type(value).__name__}")
        return [v.decode() if isinstance(v, bytes) else v for v in value]

    # -- functions and subgraphs --

    def call(
        self, node: onnx.NodeProto, body: onnx.FunctionProto, inputs: Sequence[Any], more: Mapping[str, Any]
    ) -> Sequence[Any]:
        """Imports the body of a function in place of its call."""
        if len(self.enclosing) > 32:
            raise UnsupportedError("functions call each other more than 32 deep")
        arguments = {a.name: a for a in self.resolved_attributes(node)}
        known = {a.name: a for a in getattr(body, "attribute_proto", ())}
        given = list(inputs) + [None] * (len(body.input) - len(inputs))
        scope = {name: x for name, x in zip(body.input, given, strict=False) if name}
        outer = self.opsets, self.arguments
        self.opsets = {**self.opsets, **_opsets(body.opset_import)}
        self.arguments = {**known, **more, **arguments}
        try:
            with self.scope(scope), self.inside(f"the body of {node.op_type} `{node.name or node.output[0]}`"):
                self.run_nodes(body.node, body.output)
            return [scope.get(name, MISSING) for name in body.output]
        finally:
            self.opsets, self.arguments = outer

    def resolved_attributes(self, node: onnx.NodeProto) -> list[Any]:
        """The attributes of a node, with the values of those that refer to attributes of the enclosing function."""
        import onnx

        found = []
        for attribute in node.attribute:
            if not self.is_given(attribute):
                continue
            own = onnx.AttributeProto()
            own.CopyFrom(self.arguments[attribute.ref_attr_name] if attribute.ref_attr_name else attribute)
            own.name = attribute.name
            found.append(own)
        return found

    def subgraph(self, graph: onnx.GraphProto, inputs: Sequence[Any]) -> list[Any]:
        """Imports a subgraph in place; it may use the values of the enclosing graphs."""
        with self.scope(ChainMap({}, self.env)), self.inside(f"the subgraph `{graph.name}`"):
            for tensor in graph.initializer:
                self.env[tensor.name] = constant_of(self, array_of(tensor, self.folder))
            for value, x in zip(graph.input, inputs, strict=True):
                self.env[value.name] = x
            before = len(self.unsupported)
            self.run_nodes(graph.node, [value.name for value in graph.output])
            if len(self.unsupported) > before:
                return [MISSING] * len(graph.output)
            return [self.value(value.name) for value in graph.output]

    @contextmanager
    def scope(self, env: MutableMapping[str, Any]) -> Iterator[None]:
        """While this lasts, names are looked up in `env`, the scope of a subgraph or function."""
        outer, self.env = self.env, env
        try:
            yield
        finally:
            self.env = outer

    @contextmanager
    def branch(self) -> Iterator[None]:
        """While this lasts, what becomes known of values holds in this branch only."""
        known = self.known
        self.known = dict(known)
        try:
            yield
        finally:
            self.known = known

    # -- what is declared --

    def with_known_shape(self, value: Any, declared: Any) -> Any:
        """A value whose shape is known: by what the model declares, or by new symbolic variables."""
        if not isinstance(value, Expr) or isinstance(value, Constant):
            return value
        if value.struct_info_ is None:
            value = self.emit(value)
        info = value.struct_info
        if not isinstance(info, TensorStructInfo):
            return value
        shape = None
        if declared is not None and declared.HasField("tensor_type"):
            shape = extents_of(declared.tensor_type, self.symbols)
        if info.extents is not None and all(isinstance(e, IntImm) for e in info.extents):
            return value
        if info.ndim == -1 and shape is None:
            raise UnsupportedError("how many dimensions the result has must be known while compiling")
        count = len(shape or ()) if info.ndim == -1 else info.ndim
        if shape is None or len(shape) != count:
            shape = [None] * count
        found = list(info.extents) if info.extents is not None else [None] * count
        # Of what the model declares, only numbers say more than what is known. Where extents follow from those of
        # inputs, they may be left over from before a dimension was made a symbol.
        extents = [
            t if isinstance(t, int) and not self.follows_from_inputs(f) else f
            for t, f in zip(shape, found, strict=True)
        ]
        extents = [self.symbols.fresh_extent() if e is None else e for e in extents]
        if info.extents is not None and all(a is b for a, b in zip(extents, found, strict=True)):
            return value
        if info.extents is not None and all(map(self.same, extents, found)):
            return value
        cast = self.block_builder.match_cast(value, TensorStructInfo(extents, info.dtype))
        if value in self.known:
            self.known[cast] = self.known[value]
        return cast

    def follows_from_inputs(self, extent: Any) -> bool:
        """Whether an extent is known from the shapes of the inputs."""
        return extent is not None and self.input_symbols.issuperset(undefined_vars(extent))

    def output(self, name: str) -> Expr:
        """The value of an output of the model."""
        value = self.value(name)
        return Tuple([as_object(self, v) for v in value]) if isinstance(value, list) else as_object(self, value)

    def describe(self, node: onnx.NodeProto, operator: str) -> str:
        """The name of a node, input or weight, what it is part of, and its operator."""
        return f"{' in '.join([f'`{node}`', *reversed(self.enclosing)])}, {operator}"


def _number_or_name(extent: Any) -> str:
    return str(extent.value if isinstance(extent, IntImm) else extent)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(imports: Any) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in imports}


def _no_converter(opset: int) -> UnsupportedError:
    return UnsupportedError(f"the importer has no converter for this operator in opset {opset}")


def _all_nodes(graph: onnx.GraphProto) -> Iterator[Any]:
    """The nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)
