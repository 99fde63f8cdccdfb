"""Functions over buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..ir.attrs import DictAttrs, as_dict_attrs
from ..ir.container import EMPTY, Array
from ..ir.expr import Var
from ..ir.module import BaseFunc
from ..ir.node import Node, attr, binder, child
from ..ir.type import VOID_TYPE, PointerType, PrimType, Type
from ..runtime.error import NotRegistered, TypeMismatch, WellFormedError
from ..runtime.object_generic import convert
from .buffer import Buffer
from .index_map import IndexMap
from .stmt import Stmt
from .stmt_functor import substitute

__all__ = ["IndexMap", "PrimFunc", "TensorIntrin"]


def _as_params(params: Var | Buffer | Iterable[Any]) -> Array[Any]:
    """One parameter or several; `_derive` makes variables of the buffers among them."""
    if isinstance(params, (Var, Buffer)):
        return Array((params,))
    # What stands for a buffer, such as a pointer of `ir_builder`, gives it.
    return Array(p if isinstance(p, (Var, Buffer)) else convert(p) for p in params)


def _as_ret_type(ret_type: Type | None) -> Type:
    return VOID_TYPE if ret_type is None else ret_type


class PrimFunc(BaseFunc):
    """A function that reads and writes memory.

    A parameter is a scalar or a handle; `buffer_map` says which handles are tensors and how these look. A `Buffer`
    among the parameters stands for a handle and its entry in `buffer_map`.
    """

    params: Array[Var] = binder(converter=_as_params)
    body: Stmt = child()
    ret_type: Type = attr(default=None, converter=_as_ret_type)
    buffer_map: Mapping[Var, Buffer] = binder(default=EMPTY)
    attrs: DictAttrs = attr(default=None, converter=as_dict_attrs)

    def _derive(self) -> None:
        if any(isinstance(p, Buffer) for p in self.params):
            buffer_map = dict(self.buffer_map)
            params: list[Var] = []
            for p in self.params:
                if isinstance(p, Buffer):
                    handle = Var(p.name, "handle")
                    buffer_map[handle] = p
                    p = handle
                params.append(p)
            self.params, self.buffer_map = Array(params), buffer_map

    def with_body(self, new_body: Stmt, span: Any = None) -> PrimFunc:
        """The same signature with another body."""
        return self.replace(body=new_body, **({"span": span} if span is not None else {}))

    def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc:
        """The function with some parameters fixed: scalars to values, tensors to buffers of more specific shapes.

        The symbolic extents that this determines are replaced everywhere; fixed scalars are removed from the
        parameters.
        """
        values: dict[Var, Any] = {}
        for param, value in param_map.items():
            if param not in self.params:
                raise NotRegistered(
                    f"the function has no parameter `{param.name}`; it has {', '.join(p.name for p in self.params)}"
                )
            if param not in self.buffer_map:
                values[param] = value
                continue
            if not isinstance(value, Buffer):
                raise TypeMismatch(
                    f"parameter `{param.name}` is a tensor: expected a Buffer to fix it to, found {value!r}"
                )
            _match_buffer(self.buffer_map[param], value, values)
        body = substitute(self, values)
        return body.replace(params=Array(p for p in self.params if p not in values))

    @property
    def func_type(self) -> Any:
        """The type of the function: of its parameters and its result."""
        from ..ir.type import FuncType

        kinds = [PointerType(PrimType("void")) if p.dtype == "handle" else PrimType(p.dtype) for p in self.params]
        return FuncType(kinds, self.ret_type)

    def __call__(self, *args: Any) -> Any:
        """A function is called by building it, or through its `GlobalVar` inside of a module."""
        raise TypeMismatch("a PrimFunc is not called directly: build it with oneir.build(func), then call the result")


def _match_buffer(declared: Buffer, given: Buffer, values: dict[Var, Any]) -> None:
    if declared.dtype != given.dtype or len(declared.shape) != len(given.shape):
        raise TypeMismatch(
            f"buffer `{declared.name}` is {declared.dtype} with {len(declared.shape)} dimensions; "
            f"it cannot be fixed to {given.dtype} with {len(given.shape)}"
        )
    pairs = [*zip(declared.shape, given.shape, strict=True)]
    if declared.strides and given.strides:
        pairs += zip(declared.strides, given.strides, strict=True)
    for old, new in pairs:
        if isinstance(old, Var) and values.get(old, new) == new:
            values[old] = new
        elif old != new:
            raise TypeMismatch(f"buffer `{declared.name}`: {old} cannot be fixed to {new}")


class TensorIntrin(Node):
    """A hardware or library instruction: what it computes (`desc`) and how it is called (`impl`)."""

    desc: PrimFunc = child()
    impl: PrimFunc = child()

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Registers an intrinsic under a name."""
        if name in _intrinsics and not override:
            raise NotRegistered(f"a tensor intrinsic {name!r} is registered already; pass override=True to replace it")
        if len(desc.params) != len(impl.params):
            raise WellFormedError(
                f"tensor intrinsic {name!r}: the description has {len(desc.params)} parameters, "
                f"the implementation {len(impl.params)}"
            )
        intrin = _intrinsics[name] = TensorIntrin(desc, impl)
        return intrin

    @staticmethod
    def provide(name: str, make: Callable[..., tuple[PrimFunc, PrimFunc]], *arguments: object) -> None:
        """Registers an intrinsic whose description and implementation `make(*arguments)` gives when it is asked for.

        Hardware has hundreds of them, and a program needs few.
        """
        if name in _intrinsics:
            raise NotRegistered(f"a tensor intrinsic {name!r} is registered already")
        _intrinsics[name] = functools.partial(make, *arguments)

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of that name."""
        intrin = _intrinsics.get(name)
        if intrin is None and not allow_missing:
            raise NotRegistered(
                f"no tensor intrinsic {name!r} is registered; there are {', '.join(sorted(_intrinsics)) or 'none'}"
            )
        if intrin is None or isinstance(intrin, TensorIntrin):
            return intrin
        return TensorIntrin.register(name, *intrin(), override=True)


_intrinsics: dict[str, TensorIntrin | Callable[[], tuple[PrimFunc, PrimFunc]]] = {}
