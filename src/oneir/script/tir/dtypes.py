"""Members of `T` named after a dtype: `T.float32(0)` is a constant, `T.int32()` a variable, `T.int32` an annotation."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import ExprOp, SizeVar, Var, const, pointer_to
from ...ir.type import Type
from ...runtime.error import TypeMismatch


class DTypeMember:
    """A dtype that can be called: with a value, the value as that dtype; without, a new variable."""

    def __init__(self, dtype: str):
        self.dtype = DataType(dtype)

    def __call__(self, expr: Any = None, is_size_var: bool = False) -> Any:
        if expr is None:
            return (SizeVar if is_size_var else Var)("", self.dtype)
        if isinstance(expr, ExprOp):
            return ops.cast(self.dtype, expr)
        if isinstance(expr, str):
            if not self.dtype.is_float:
                raise TypeMismatch(f"T.{self.dtype} expects a number or an expression, found {expr!r}")
            expr = float(expr)
        return const(expr, self.dtype)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


def dtype_name(value: Any) -> DataType:
    """A dtype from its name, a NumPy dtype, or a member of `T`."""
    return value.dtype if isinstance(value, DTypeMember) else DataType(value)


def handle(dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False) -> Var:
    """A pointer: to anything, or to elements of a dtype in a memory."""
    kind = SizeVar if is_size_var else Var
    if dtype is None:
        return kind("", "handle")
    if isinstance(dtype, Type):
        return kind("", dtype)
    return kind("", pointer_to(dtype_name(dtype), storage_scope))


class _PointerAnnotation:
    """`T.Ptr`: the annotation of a parameter that is a pointer, `T.Ptr(T.float32)` or `T.Ptr[T.float32, "shared"]`."""

    def __call__(self, dtype: Any, storage_scope: str = "global") -> Var:
        return ptr(dtype, storage_scope)

    def __getitem__(self, keys: Any) -> Var:
        return self(*keys) if isinstance(keys, tuple) else self(keys)


Ptr = _PointerAnnotation()


def ptr(dtype: Any, storage_scope: str = "global", is_size_var: bool = False) -> Var:
    """A pointer to elements of a dtype."""
    return handle(dtype, storage_scope, is_size_var=is_size_var)


buffer_var = ptr


def var(dtype: Any, name: str = "") -> Var:
    """A new variable."""
    return Var(name, dtype_name(dtype))


def var_of(annotation: Any) -> Var:
    """The variable that an annotation describes: `T.int32`, `T.handle`, "int32", or a variable itself."""
    found = annotation() if callable(annotation) else annotation
    if isinstance(found, str):
        found = Var("", DataType(found))
    if not isinstance(found, Var):
        raise TypeMismatch(f"expected a type such as T.int32 or T.handle, found {annotation!r}")
    return found
