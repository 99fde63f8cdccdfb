"""What the importers of PyTorch's and ONNX's models share.

A *converter* is a function that emits what one operator computes: `converter(importer, *arguments)` returns the value
of the node. It asks the importer for the shapes and dtypes of values, gives expressions variables by `emit`, and raises
`UnsupportedError` where a node cannot be imported. Such nodes are collected, and one error reports all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...runtime.error import InternalError, OneIRError, UnsupportedError
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Constant, Expr, ShapeExpr, const
from ..struct_info import TensorStructInfo
from ..transform import ConvertToDataflow, DeadCodeElimination

Converter = Callable[..., Any]


class ConverterTable:
    """The converters of one kind of model, by operator and by the version of the operators since which they hold."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, Converter]] = {}

    def register(self, *names: str, since: int = 1) -> Callable[[Converter], Converter]:
        """Registers the decorated function as the converter of the operators of these names.

        Raises `InternalError` where an operator already has a converter since the same version.
        """

        def registered(function: Converter) -> Converter:
            for name in names:
                versions = self._versions.setdefault(name, {})
                if since in versions:
                    raise InternalError(f"the operator {name} has two converters since version {since}")
                versions[since] = function
            return function

        return registered

    def find(self, name: str, version: int = 1) -> Converter | None:
        """The newest converter of an operator that is not newer than the version; None if there is none."""
        versions = self._versions.get(name, {})
        return versions.get(max((since for since in versions if since <= version), default=0))

    def names(self) -> set[str]:
        """The operators that have a converter."""
        return set(self._versions)


def call_converter(function: Converter, importer: ModelImporter, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls a converter. Raises `UnsupportedError` for arguments that its signature does not have."""
    try:
        inspect.signature(function).bind(importer, *args, **kwargs)
    except TypeError as error:
        raise UnsupportedError(f"the importer does not know this use of the operator ({error})") from None
    return function(importer, *args, **kwargs)


@dataclass(frozen=True)
class UnsupportedNode:
    """A node that cannot be imported."""

    node: Any
    description: str
    """The node, its operator, and its place in the user's model."""
    error: OneIRError
    """Why it cannot be imported."""


class ModelImporter:
    """Builds a function from the nodes of a model: what does not depend on the format of the model."""

    model_kind: ClassVar[str] = "model"
    """What the model is called in the report of unsupported nodes, and what its nodes are called."""
    node_kind: ClassVar[str] = "node"
    advice: ClassVar[str] = ""
    """The last line of that report: what the user can do."""
    static_advice: ClassVar[str] = ""
    """What the user can do where an extent is not known while compiling."""

    def __init__(self) -> None:
        self.block_builder = BlockBuilder()
        self.env: MutableMapping[Any, Any] = {}
        """The values of the nodes, or of names."""
        self.enclosing: tuple[Any, ...] = ()
        """What the node that is converted is part of, from the outside in: nodes with graphs, bodies of functions."""
        self.unsupported: list[UnsupportedNode] = []

    # -- nodes that cannot be imported --

    def describe(self, node: Any, operator: str) -> str:
        """The line of the report for a node of an operator: with its place in the user's model."""
        raise NotImplementedError

    @contextmanager
    def inside(self, place: Any) -> Iterator[None]:
        """While this lasts, the nodes that are converted are part of `place`."""
        outer, self.enclosing = self.enclosing, (*self.enclosing, place)
        try:
            yield
        finally:
            self.enclosing = outer

    @contextmanager
    def reporting(self, node: Any, operator: str) -> Iterator[None]:
        """An error that is raised within becomes a part of the report; importing goes on after it."""
        try:
            yield
        except OneIRError as error:
            self.add_unsupported(node, operator, error)

    def add_unsupported(self, node: Any, operator: str, error: OneIRError) -> None:
        """Adds a node that cannot be imported to the report."""
        self.unsupported.append(UnsupportedNode(node, self.describe(node, operator), error))

    def report(self) -> None:
        """Raises an `UnsupportedError` that lists all nodes that cannot be imported, if there are any."""
        if not self.unsupported:
            return
        count = len(self.unsupported)
        nodes = self.node_kind if count == 1 else f"{self.node_kind}s"
        lines = [f"{count} {nodes} of the {self.model_kind} cannot be imported:"]
        lines += [f"  {u.description}\n    {u.error}" for u in self.unsupported]
        raise UnsupportedError("\n".join([*lines, self.advised()]))

    def advised(self) -> str:
        """The last line of the report."""
        return self.advice

    # -- what is known of values --

    def info(self, x: Any) -> TensorStructInfo:
        """The struct info of a tensor. Raises `UnsupportedError` for anything else."""
        if not isinstance(x, Expr):
            found = "nothing" if x is None else "a sequence" if isinstance(x, list) else repr(x)
            raise UnsupportedError(f"expected a tensor, found {found}")
        if x.struct_info_ is None:
            x = self.block_builder.normalize(x)
        if not isinstance(x.struct_info, TensorStructInfo):
            raise UnsupportedError(f"expected a tensor, found {x.struct_info}")
        return x.struct_info

    def shape(self, x: Expr) -> list[Any]:
        """The extents of a tensor: integers, and expressions where they are symbolic."""
        info = self.info(x)
        if info.extents is None:
            raise UnsupportedError(f"the shape of `{x}` is not known while compiling")
        return [e.value if isinstance(e, IntImm) else e for e in info.extents]

    def dtype(self, x: Expr) -> str:
        """The dtype of a tensor."""
        return self.info(x).dtype

    def ndim(self, x: Expr) -> int:
        """The number of dimensions of a tensor."""
        return self.info(x).ndim

    def static(self, value: Any, what: str) -> int:
        """An integer that must be known while compiling; `what` names it in the `UnsupportedError` if it is not."""
        if isinstance(value, IntImm):
            value = value.value
        if not isinstance(value, (int, np.integer)):
            raise UnsupportedError(f"{what} must be known while compiling, found `{value}`{self.static_advice}")
        return int(value)

    def static_shape(self, x: Expr, what: str) -> list[int]:
        """The extents of a tensor, which must be known while compiling."""
        return [self.static(e, what) for e in self.shape(x)]

    def same(self, a: Any, b: Any) -> bool:
        """Whether two extents are equal for all values of symbolic variables."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return self.block_builder.analyzer.can_prove_equal(a, b)

    def same_shape(self, a: Sequence[Any], b: Sequence[Any]) -> bool:
        """Whether two shapes are equal for all values of symbolic variables."""
        return len(a) == len(b) and all(map(self.same, a, b))

    # -- expressions --

    def emit(self, expr: Expr) -> Expr:
        """Gives an expression a variable."""
        return self.block_builder.emit(expr)

    def te(self, function: Callable[..., Any], *args: Any, name: str = "") -> Expr:
        """Emits what a function of tensor expressions computes; `name` is that of the PrimFunc."""
        return self.block_builder.emit_te(function, *args, primfunc_name_hint=name or None)

    def like(self, value: Any, x: Expr) -> Constant:
        """A number, or an array, as a constant of the dtype of a tensor."""
        return const(value, self.dtype(x))

    def cast(self, x: Expr, dtype: str) -> Expr:
        """The tensor in a dtype; itself if it has it."""
        return x if self.dtype(x) == dtype else self.emit(op.astype(x, dtype))

    def reshaped(self, x: Expr, extents: Sequence[Any]) -> Expr:
        """The tensor in another shape; itself if it has it."""
        return x if self.same_shape(self.shape(x), extents) else self.emit(op.reshape(x, ShapeExpr(list(extents))))

    def broadcast(self, x: Expr, extents: Sequence[Any]) -> Expr:
        """The tensor broadcast to a shape; itself if it has it."""
        return x if self.same_shape(self.shape(x), extents) else self.emit(op.broadcast_to(x, ShapeExpr(list(extents))))

    def along(self, vector: Expr, axis: int, ndim: int) -> Expr:
        """A vector as a tensor of `ndim` dimensions, all of extent 1 but `axis`."""
        shape: list[Any] = [1] * ndim
        shape[axis] = self.shape(vector)[0]
        return self.reshaped(vector, shape)


def without_unused(mod: IRModule) -> IRModule:
    """A module whose functions have conditions: its dataflow blocks made again, without what nothing uses."""
    return ConvertToDataflow()(DeadCodeElimination(["main"])(mod))
