"""From graphs of ATen's operators to functions: what exported programs and graphs of `torch.compile` share.

Each node says, in `meta["val"]`, which shape and dtype PyTorch found for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.expr import Var as PrimVar
from ....ir.module import IRModule
from ....runtime.error import UnsupportedError
from ....tir.analysis.variables import variables
from ... import op
from ...expr import Expr, Var
from ...struct_info import ShapeStructInfo, TensorStructInfo
from ..importer import without_unused
from . import operators
from .dtypes import dtype_name
from .importer import Importer, Pair, check_dense, fields_of, is_tensor
from .registry import NotDecomposable

# Operators that run a subgraph without gradients or in other dtypes, and the index of the subgraph in their arguments.
_WRAPPERS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}


def is_example(value: Any) -> bool:
    """Whether the example value of a node (`meta["val"]`) is that of a tensor."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def is_complex(node: Any) -> bool:
    """Whether a node is a complex tensor."""
    example = node.meta.get("val")
    return is_example(example) and example.is_complex()


class AtenImporter(Importer):
    """Imports the nodes of a graph of ATen's operators."""

    def __init__(self, graph_module: Any, custom: dict[str, Callable[..., Any]] | None = None):
        super().__init__(custom)
        self.whole = self.graph_module = graph_module
        self.inputs: list[Var] = []
        self._numbers: set[str] | None = None
        self.has_branches = any(operators.has_branches(m.graph) for m in graph_module.modules() if hasattr(m, "graph"))

    # -- inputs --

    def read_inputs(self, nodes: list[Any]) -> None:
        """Makes a parameter of each placeholder that is a tensor or an integer that varies.

        The value of a symbol that is nowhere an extent by itself is solved from an extent with it, such as 2 * n.
        """
        known = {
            extent
            for node in nodes
            for value in _numbers_of(node.meta.get("val"))
            if isinstance(extent := self.symbols.expression(value), PrimVar)
        }
        solved: dict[str, tuple[PrimVar, PrimExpr]] = {}
        for node in nodes:
            for value in _numbers_of(node.meta.get("val")):
                if hasattr(value, "node") and str(value) not in solved:
                    found = self.symbols.solve(value, known)
                    if found is not None:
                        solved[str(value)] = found
                        known.add(found[0])
        for node in nodes:
            with self.reporting(node, "user input"):
                self.env[node] = self.input(node, solved)
        for var in self.inputs:
            for extent in _extents_of(var):
                if unknown := variables(extent) - known:
                    node = next(n for n in nodes if n.name == var.name)
                    names = ", ".join(sorted(v.name for v in unknown))
                    error = UnsupportedError(
                        f"the extents of the inputs do not tell the value of {names} in the extent `{extent}`; export "
                        "with a Dim that is an extent of its own, or one symbol times a factor plus an offset"
                    )
                    self.add_unsupported(node, "user input", error)

    def input(self, node: Any, solved: dict[str, tuple[PrimVar, PrimExpr]]) -> Any:
        """The parameter of the function for a tensor or a symbolic integer; other inputs have their value.

        Raises `UnsupportedError` for complex tensors, and for floats and bools that vary from call to call.
        """
        example = node.meta.get("val")
        if is_complex(node):
            raise UnsupportedError(
                f"an input of {example.dtype}; pass torch.view_as_real of it, and view that as complex in the model"
            )
        if is_example(example):
            check_dense(example)
            return self.tensor_input(node, example.shape, example.dtype, solved)
        if type(example).__name__ == "SymInt":
            symbol = self.symbols.expression(example)
            self.inputs.append(Var(node.name, ShapeStructInfo([symbol])))
            return symbol
        if type(example).__name__ in ("SymFloat", "SymBool"):
            raise UnsupportedError("a number that varies from call to call; pass it as a tensor")
        return example

    def tensor_input(
        self, node: Any, shape: Sequence[Any], dtype: Any, solved: dict[str, tuple[PrimVar, PrimExpr]]
    ) -> Var:
        """The parameter of the function for an input."""
        extents = [solved[str(e)][0] if str(e) in solved else self.symbols.expression(e) for e in shape]
        var = Var(node.name, TensorStructInfo(extents, dtype_name(dtype)))
        self.inputs.append(var)
        return var

    def assert_inputs(self, nodes: list[Any]) -> None:
        """Asserts by match_casts what PyTorch knows of shapes of inputs beyond the struct info of parameters."""
        for node in nodes:
            if is_tensor(self.env.get(node)):
                self.env[node] = self.verified(self.env[node], node.meta.get("val"))

    def extents(self, example: Any) -> list[Any]:
        """The shape of an example, symbolic integers as expressions."""
        return [self.symbols.expression(extent) for extent in example.shape]

    def tensor_info(self, example: Any) -> TensorStructInfo:
        """What PyTorch knows of a tensor."""
        return TensorStructInfo(self.extents(example), dtype_name(example.dtype))

    # -- nodes --

    def convert(self, node: Any) -> None:
        """Emits what a node computes, or adds the node to the report of unsupported ones."""
        if node.op == "get_attr":
            self.env[node] = self.attribute(node)
            return
        if self.depends_on_missing(node):
            self.add_placeholder(node)
            return
        name, overload = operators.name_of(node.target)
        if name in _WRAPPERS:
            self.inline(node, node.args[_WRAPPERS[name] :])
            return
        example = node.meta.get("val")
        self.expected = self.extents(example) if is_example(example) else None
        several = isinstance(example, (list, tuple)) and all(map(is_example, example))
        self.expected_parts = [self.extents(e) for e in example] if several else None
        self.is_contiguous = _is_contiguous(node)
        args, kwargs = self.operands(node, name), node.kwargs
        if name in ("as_strided", "as_strided_copy"):
            args, kwargs = self.of_memory(node)
        self.call(node, name, overload, args, kwargs)
        if node in self.env and (node.users or self.env[node] is not None):
            with self.reporting(node, f"{name}.{overload}" if overload else name):
                value = self.env.pop(node)
                _check_parts(node, value)
                self.env[node] = self.verified(value, example)
        if node not in self.env:
            self.add_placeholder(node)
            return
        written = node
        while operators.is_in_place(written.target):
            written = written.args[0]
            self.env[written] = self.env[node]

    def operands(self, node: Any, name: str) -> Sequence[Any]:
        """The arguments of a node; where they broadcast, with extents that are 1 or those of the result.

        What cannot be proven of an extent is asserted when the program runs.
        """
        args, expected = node.args, self.expected
        if expected is None:
            return args
        if operators.broadcasts(node.target):
            return self.broadcastable(args, expected)
        if name in ("bmm", "matmul") and all(is_tensor(self.env[x]) and self.ndim(self.env[x]) > 1 for x in args):
            summed = self.shape(self.env[args[1]])[-2]
            batch = expected[:-2]
            return [
                self.with_trailing_extents(args[0], [*batch, None, summed]),
                self.with_trailing_extents(args[1], [*batch, None, None]),
            ]
        if name == "cat" and isinstance(args[0], (list, tuple)):
            axis = args[1] if len(args) > 1 else 0
            return [self.broadcastable(args[0], expected, axis % len(expected)), axis]
        return args

    def of_memory(self, node: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments of as_strided with what its first argument is a view of in its place, where that is known."""
        x, size, stride, *rest = node.args
        example, base = x.meta.get("val"), x
        while not _covers_storage(base.meta.get("val")) and operators.is_view(base) and hasattr(base.args[0], "meta"):
            base = base.args[0]
        found = base.meta.get("val")
        if not _covers_storage(found) or found.dtype != example.dtype:
            return node.args, node.kwargs
        self.is_contiguous = True
        offset = rest[0] if rest else node.kwargs.get("storage_offset")
        return (base, size, stride, example.storage_offset() if offset is None else offset), {}

    def broadcastable(self, args: Sequence[Any], expected: Sequence[Any], free: int | None = None) -> list[Any]:
        """The values of operands, with the extents of the result in all dimensions but `free`."""
        wanted: list[Any] = list(expected)
        for argument in args:
            x = self.value(argument)
            found = self.shape(x) if is_tensor(x) and self.info(x).extents is not None else []
            for i in range(-min(len(found), len(expected)), 0):
                # What is symbolic for PyTorch may be known here.
                if isinstance(found[i], int) and found[i] != 1:
                    wanted[i] = found[i]
        if free is not None:
            wanted[free] = None
        return [self.with_trailing_extents(x, wanted) for x in args]

    def with_trailing_extents(self, argument: Any, wanted: Sequence[Any]) -> Any:
        """The value of an argument, with trailing extents asserted to be 1 or those of a shape; None matches any."""
        x = self.value(argument)
        example: Any = getattr(argument, "meta", {}).get("val")
        if not is_tensor(x) or not is_example(example) or self.info(x).extents is None:
            return x
        found = self.shape(x)
        made = list(found)
        for i in range(-min(len(found), len(wanted)), 0):
            if wanted[i] is None or isinstance(found[i], int):
                continue
            if not self.block_builder.analyzer.can_prove_equal(found[i], wanted[i]):
                # PyTorch compared an extent whose value it knew from the example with 1.
                is_one = getattr(getattr(example.shape[i], "node", None), "hint", None) == 1
                made[i] = 1 if is_one else wanted[i]
        if all(own is extent for own, extent in zip(found, made, strict=True)):
            return x
        return self.block_builder.match_cast(x, TensorStructInfo(made, self.dtype(x)))

    def inline(self, node: Any, call: Sequence[Any]) -> None:
        """Emits the nodes of a graph module that is called with arguments, and gives `node` its result."""
        module, *args = (self.value(part) for part in call)
        output = self.run_nodes(module, args)
        if output is None:
            self.add_placeholder(node)
        else:
            self.env[node] = self.value(output.args[0])

    def subgraph(self, module: Any, args: Sequence[Any]) -> Any:
        """Emits the nodes of a graph module, and returns its result.

        Raises `UnsupportedError` if a node that the result depends on is unsupported.
        """
        output = self.run_nodes(module, args)
        if output is None:
            raise UnsupportedError("a part of it cannot be imported")
        return self.value(output.args[0])

    def run_nodes(self, module: Any, args: Sequence[Any]) -> Any:
        """Emits the nodes of a graph module; returns its output node, or None if an operand of that is unsupported."""
        outer, self.graph_module = self.graph_module, module
        given, output = iter(args), None
        try:
            for node in module.graph.nodes:
                if node.op == "placeholder":
                    self.env[node] = self.verified(next(given), node.meta.get("val"))
                elif node.op != "output":
                    self.convert(node)
                else:
                    output = node
        finally:
            self.graph_module = outer
        return None if output is None or self.depends_on_missing(output) else output

    @contextmanager
    def body(self) -> Iterator[None]:
        """The scope of the bindings of `main`: one dataflow block, if the program has no control flow."""
        if self.has_branches:
            yield
        else:
            with self.block_builder.dataflow():
                yield

    def results_of(self, node: Any) -> Any:
        """The values that a program returns; complex ones are reported as unsupported."""
        for source in node.all_input_nodes:
            if isinstance(self.env.get(source), Pair):
                error = NotDecomposable("a complex result; return torch.view_as_real of it")
                self.add_unsupported(source, "output", error)
        return self.value(node.args[0])

    def result(self, value: Expr) -> Var:
        """Gives a result of the program a variable."""
        return self.emit(value) if self.has_branches else self.block_builder.emit_output(value)

    def finished(self) -> IRModule:
        """The module, when its functions are complete."""
        mod = self.block_builder.finalize()
        return without_unused(mod) if self.has_branches else mod

    def verified(self, value: Any, example: Any) -> Any:
        """A value of the shape and dtype that PyTorch found. Raises `UnsupportedError` where they differ.

        Where shapes are symbolic, PyTorch may know more of them: a match_cast asserts it when the program runs.
        """
        if isinstance(example, (list, tuple)):
            parts = fields_of(value)
            pairs = zip(parts, example, strict=False)
            checked = [None if part is None else self.verified(part, expected) for part, expected in pairs]
            return value if all(a is b for a, b in zip(parts, checked, strict=False)) else tuple(checked)
        if isinstance(value, Pair):
            if not is_example(example) or not example.is_complex():
                raise UnsupportedError("complex numbers where PyTorch has real ones")
            return Pair(self.verified(value.real, example.real), self.verified(value.imag, example.imag))
        if type(example).__name__ == "SymInt" and isinstance(value, Expr):
            return self.number(value, example)
        if value is None or not is_tensor(value) or not is_example(example):
            return value
        info, dtype = self.info(value), dtype_name(example.dtype)
        expected = self.extents(example)
        found = None if info.extents is None else self.shape(value)
        static = [
            (a, b) for a, b in zip(found or (), expected, strict=False) if isinstance(a, int) and isinstance(b, int)
        ]
        if info.dtype != dtype or info.ndim not in (-1, len(expected)) or any(a != b for a, b in static):
            raise UnsupportedError(
                f"the importer does not know this use of the operator: it gives {info.dtype} of shape "
                f"{info.ndim if found is None else found}, but PyTorch {dtype} of shape {expected}"
            )
        if found is not None and all(map(self.block_builder.analyzer.can_prove_equal, found, expected)):
            return value
        return self.block_builder.match_cast(value, TensorStructInfo(expected, dtype))

    def number(self, value: Expr, example: Any) -> Any:
        """The symbolic integer whose value a shape of one extent, or a scalar tensor, has when the program runs.

        A tensor stays one if no extent and no integer argument depends on it.
        """
        if is_tensor(value):
            env = example.node.shape_env
            if not any(env.is_unbacked_symint(symbol) for symbol in example.node.expr.free_symbols):
                return self.symbols.expression(example)
            if self._as_numbers().isdisjoint(map(str, example.node.expr.free_symbols)):
                return value
            value = self.emit(op.tensor_to_shape(op.reshape(op.astype(value, "int64"), [1])))
        symbol = self.symbols.expression(example)
        self.block_builder.match_cast(value, ShapeStructInfo([symbol]))
        return symbol

    def _as_numbers(self) -> set[str]:
        """The symbols on which extents, or integer arguments of operators, depend."""
        if self._numbers is None:
            graphs = [m.graph for m in self.whole.modules() if hasattr(m, "graph")]
            nodes = [node for graph in graphs for node in graph.nodes]
            examples = [e for node in nodes for e in _flat(node.meta.get("val")) if is_example(e)]
            used = [extent for example in examples for extent in example.shape]
            used += [n.meta.get("val") for node in nodes for n in operators.integers_of(node)]
            symbolic = [number.node.expr for number in used if hasattr(number, "node")]
            self._numbers = {str(symbol) for expr in symbolic for symbol in expr.free_symbols}
        return self._numbers

    def attribute(self, node: Any) -> Any:
        """A tensor that the graph module holds."""
        value = self.graph_module
        for part in node.target.split("."):
            value = getattr(value, part)
        return self.shared_constant(value) if hasattr(value, "data_ptr") else value

    def add_placeholder(self, node: Any) -> None:
        """Gives an unsupported node a variable as its value, so that the nodes that use it are checked too."""
        try:
            self.env[node] = self._placeholder(node.name, node.meta.get("val"))
        except UnsupportedError:
            return  # The dtype has no counterpart.

    def _placeholder(self, name: str, example: Any) -> Any:
        if isinstance(example, (list, tuple)):
            return tuple(self._placeholder(f"{name}_{i}", e) for i, e in enumerate(example))
        if is_example(example):
            if example.is_complex():
                return Pair(*(self._placeholder(f"{name}_{p}", getattr(example, p)) for p in ("real", "imag")))
            return Var(name, self.tensor_info(example))
        return self.symbols.expression(example) if type(example).__name__ == "SymInt" else example


def _check_parts(node: Any, value: Any) -> None:
    """Raises `UnsupportedError` where the graph takes a part of a result that the converter does not compute.

    It is the operator with the parts that may be broken into smaller ones, not what takes a part.
    """
    for user in node.users:
        if isinstance(value, tuple) and operators.is_getitem(user) and user.users and value[user.args[1]] is None:
            raise UnsupportedError("this result of the operator, which is for training, is not computed")


def _is_contiguous(node: Any) -> bool:
    """Whether the first argument of a node is contiguous and covers its whole storage."""
    return bool(node.args) and hasattr(node.args[0], "meta") and _covers_storage(node.args[0].meta.get("val"))


def _covers_storage(example: Any) -> bool:
    """Whether a tensor is contiguous and covers its whole storage."""
    if not hasattr(example, "is_contiguous") or any(type(e).__name__ == "SymInt" for e in example.shape):
        return False
    return example.is_contiguous() and example.untyped_storage().nbytes() == example.numel() * example.element_size()


def _flat(value: Any) -> list[Any]:
    """The values in nested tuples."""
    return [v for part in value for v in _flat(part)] if isinstance(value, (tuple, list)) else [value]


def _numbers_of(example: Any) -> list[Any]:
    """The integers that are known from an input: its extents, or itself."""
    if is_example(example):
        return list(example.shape)
    return [example] if type(example).__name__ == "SymInt" else []


def _extents_of(var: Var) -> list[PrimExpr]:
    """The extents of a tensor, the numbers of a shape."""
    info = var.struct_info
    if isinstance(info, TensorStructInfo):
        return list(info.extents or ())
    return list(info.values or ()) if isinstance(info, ShapeStructInfo) else []
