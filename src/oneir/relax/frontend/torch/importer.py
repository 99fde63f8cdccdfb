"""What the importers of PyTorch's graphs share.

Converters of users get the importer with the node: `importer.retrieve_args(node)` are the arguments and
`importer.block_builder.emit(...)` makes a value of an expression. `Importer.env` has the value of each node: an
expression for a tensor, a `PrimExpr` for a symbolic integer, tuples of these, or a Python value. What cannot be
imported is collected, and reported as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.expr import IntImm, PrimExpr
from ....runtime.error import TypeMismatch, UnsupportedError
from ....runtime.tensor import from_dlpack
from ...expr import Constant, Expr, ShapeExpr, Var
from ...struct_info import TensorStructInfo, TupleStructInfo
from ..importer import ModelImporter
from .dtypes import dtype_name
from .registry import NotDecomposable, call_converter, find_converter
from .symbolic import Symbols


@dataclass(frozen=True)
class Pair:
    """A complex tensor: its real and its imaginary parts."""

    real: Any
    imag: Any


class Importer(ModelImporter):
    """Emits what nodes compute into the function that `block_builder` builds.

    `env` has the value of each node: an expression for a tensor, a `PrimExpr` for a symbolic integer, tuples of these,
    or a Python value.
    """

    def __init__(self, custom_converters: dict[str, Callable[..., Any]] | None = None):
        super().__init__()
        self.symbols = Symbols()
        self.custom = custom_converters or {}
        # The shape that PyTorch found for the node that is converted, if it did.
        self.expected: list[Any] | None = None
        # The shapes of the fields of its result, where that is a tuple.
        self.expected_parts: list[list[Any]] | None = None
        # Whether its first argument is contiguous in PyTorch and covers its whole storage.
        self.is_contiguous = False
        self._constants: dict[tuple[Any, ...], Constant] = {}

    # -- for converters --

    def emit(self, expr: Expr) -> Var:
        """Gives an expression a variable."""
        return self.block_builder.emit(expr)

    def retrieve_args(self, node: Any) -> Any:
        """The arguments of a node, with the values of the nodes in them: for converters of users."""
        return self.value(node.args)

    def axis(self, x: Expr, dim: int) -> int:
        """A dimension counted from the front."""
        return dim % max(self.ndim(x), 1)

    def is_scalar(self, x: Any) -> bool:
        """Whether a value is a tensor without dimensions."""
        return is_tensor(x) and self.ndim(x) == 0

    def shared_constant(self, data: Any, name: str = "") -> Any:
        """A PyTorch tensor as a constant that shares its memory; a tensor that is used twice is one constant.

        Raises `UnsupportedError` for tensors that are not dense, or of a dtype without counterpart.
        """
        data = data.detach()
        if data.is_complex():
            data = data.resolve_conj()
            real = self.shared_constant(data.real, f"{name}_real")
            return Pair(real, self.shared_constant(data.imag, f"{name}_imag"))
        key = (data.data_ptr(), tuple(data.shape), tuple(data.stride()), data.dtype) if data.numel() else (id(data),)
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = Constant(share(data), name=name)
        return known

    def parameter(self, data: Any) -> Expr:
        """A weight of a module."""
        return self.shared_constant(data)

    # -- for importers --

    def value(self, argument: Any) -> Any:
        """An argument of a node with the values of the nodes in it."""
        if isinstance(argument, (list, tuple)):
            values = [self.value(a) for a in argument]
            return values if isinstance(argument, list) else tuple(values)
        if isinstance(argument, dict):
            return {key: self.value(a) for key, a in argument.items()}
        if isinstance(argument, slice):
            return slice(self.value(argument.start), self.value(argument.stop), self.value(argument.step))
        if type(argument).__name__ == "Node":
            return self.env[argument]
        return argument

    def depends_on_missing(self, node: Any) -> bool:
        """Whether an operand of a node has no value, since it is unsupported."""
        return any(source not in self.env for source in node.all_input_nodes)

    def call(self, node: Any, name: str, overload: str, args: Any, kwargs: Any) -> None:
        """Converts a call of an operator: sets the value of the node, or adds it to the report of unsupported nodes."""
        operator = f"{name}.{overload}" if overload else name
        custom = self.custom.get(operator) or self.custom.get(name)
        with self.inside(node), self.reporting(node, operator):
            if custom is not None:
                self.env[node] = custom(node, self)
                return
            args, kwargs = self.value(args), self.value(kwargs)
            of_complex = _has_complex([*args, *kwargs.values()])
            function = find_converter(f"complex::{name}" if of_complex else name, overload)
            if function is None:
                what = " of complex numbers" if of_complex else ""
                raise UnsupportedError(f"the importer has no converter for this operator{what}")
            self.env[node] = call_converter(function, self, args, kwargs)

    def describe(self, node: Any, operator: str) -> str:
        """The node and its operator, the operator that the user called, and where in the user's program."""
        origin = origin_of(node)
        if origin is not None and origin != operator:
            operator = f"{operator}, part of {origin}"
        places = (source_of(n) for n in (node, *reversed(self.enclosing)))
        where = next((place for place in places if place is not None), "an unknown place")
        return f"{node.name} = {operator}, from {where}"

    def decomposable(self) -> set[Any]:
        """The unsupported operators in whose place smaller ones may be imported."""
        return {u.node.target for u in self.unsupported if not isinstance(u.error, NotDecomposable)}


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_of(node: Any) -> str | None:
    """Where in the user's program a node comes from: "file.py:12", or else the module that it is part of, if known."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    # Neither PyTorch's own files nor what it generates.
    own = [f for f in frames if "/site-packages/torch/" not in f[0] and not f[0].startswith(("torch/", "<"))]
    if own:
        return f"{own[-1][0]}:{own[-1][1]}"
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    if not modules:
        return None
    path, kind = modules[-1]
    return f"{kind if isinstance(kind, str) else kind.__qualname__} `{path}`" if path else str(kind)


def origin_of(node: Any) -> str | None:
    """The operator that the user called, if the node is part of its decomposition."""
    sources, origin = node.meta.get("from_node"), None
    while sources:
        source = sources[-1]
        target = source.target if isinstance(source.target, str) else getattr(source.target, "__name__", "")
        # TorchDynamo has Python's functions: "<built-in function relu>".
        function = re.search(r"function (\w+)", target)
        name = function[1] if function else target.removeprefix("aten.")
        # Operators that run a subgraph compute nothing by themselves.
        origin = origin if name.startswith("wrap_with_") else name
        sources = source.from_node
    return origin


def share(data: Any) -> Any:
    """A runtime tensor that shares the memory of a PyTorch tensor. Raises `UnsupportedError` if it is not dense."""
    data = data.detach()
    check_dense(data)
    dtype_name(data.dtype)
    # Conjugated and negated views, and tensors of no elements, have no memory that could be shared as it is.
    return from_dlpack(data.resolve_neg().contiguous())


def _has_complex(values: Sequence[Any]) -> bool:
    return any(_has_complex(v) if isinstance(v, (list, tuple)) else isinstance(v, (Pair, complex)) for v in values)


def as_shape(extents: Any) -> ShapeExpr:
    """Extents as a shape."""
    return ShapeExpr(list(extents))


def check_dense(data: Any) -> None:
    """Raises `UnsupportedError` for sparse and quantized tensors, and those of other layouts."""
    if str(data.layout) != "torch.strided" or data.is_quantized:
        kind = f"a quantized tensor of {data.dtype}" if data.is_quantized else f"one of the layout {data.layout}"
        raise UnsupportedError(f"expected a dense tensor, found {kind}; convert it before (to_dense, dequantize)")


def is_tensor(value: Any) -> bool:
    """Whether a value of a node is a tensor."""
    return isinstance(value, Expr) and isinstance(value.struct_info_, TensorStructInfo)


def fields_of(value: Any) -> list[Any]:
    """The fields of a Python tuple, or of an expression that is a tuple. Raises `TypeMismatch` for anything else."""
    if isinstance(value, (list, tuple)):
        return list(value)
    info = value.struct_info
    if not isinstance(info, TupleStructInfo):
        raise TypeMismatch(f"expected a tuple, found {info}")
    return [value[i] for i in range(len(info.fields))]


def is_symbolic(value: Any) -> bool:
    """Whether a value is an integer that is not known while compiling."""
    return isinstance(value, PrimExpr) and not isinstance(value, IntImm)
