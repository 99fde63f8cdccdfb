"""Structural equality and hash: the same program up to the names of its variables.

Variables are matched where they are defined. At a difference the paths to it are known: `<root>.body.seq[1].value`.
The hash is a digest of the same walk, equal in every process.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from ..runtime.digest import digests
from ..runtime.error import OneIRError, TypeMismatch
from .access_path import AccessKind, AccessPath, AccessStep
from .container import is_mapping, is_sequence
from .expr import FloatImm, GlobalVar, IntImm, PrimExpr
from .node import Field, Node, text_of
from .op import Op
from .operators import equal_exprs
from .type import Type
from .visitor import deep_recursion


class StructuralMismatch(OneIRError, ValueError):
    """Two structures that were expected to be equal and are not.

    The message says where they differ first, as a path from the root, and shows both parts. Names of variables do not
    count, but two uses of one variable must be uses of one in the other, too; with `map_free_vars=True` variables that
    are defined outside may differ.
    """


class _Comparison:
    """One comparison of two structures; the steps to the first difference, the last one first, once there is one."""

    def __init__(self, map_free_vars: bool):
        self.map_free_vars = map_free_vars
        self.left: dict[int, Any] = {}
        self.right: dict[int, Any] = {}
        self.steps: list[tuple[AccessKind, Any, AccessKind, Any]] = []

    def _step(self, kind: AccessKind, key: Any, other_kind: AccessKind | None = None, other_key: Any = None) -> bool:
        """Adds the step on the left to the difference, and that on the right where it is another one."""
        right = (kind, key) if other_kind is None else (other_kind, other_key)
        self.steps.append((kind, key, *right))
        return False

    def paths(self) -> tuple[AccessPath, AccessPath]:
        """Where the first difference is, in either structure."""
        steps = self.steps[::-1]
        return AccessPath([AccessStep(*s[:2]) for s in steps]), AccessPath([AccessStep(*s[2:]) for s in steps])

    def variables(self, a: Any, b: Any, binding: bool) -> bool:
        known = self.left.get(id(a))
        if known is not None or id(b) in self.right:
            return known is b
        if not (binding or self.map_free_vars):
            return a is b
        if not _same_kind(a, b) or not self._same_type_of(a, b):
            return False
        self.left[id(a)] = b
        self.right[id(b)] = a
        return True

    def _same_type_of(self, a: Any, b: Any) -> bool:
        for field in a.compared_fields:
            if field.name != "name" and not self.equal(getattr(a, field.name), getattr(b, field.name), field.defines):
                return self._step(AccessKind.ATTR, field.alias)
        return True

    def shared(self, a: Any, b: Any, binding: bool) -> bool:
        """Shared nodes, such as buffers, correspond one to one."""
        known = self.left.get(id(a))
        if known is not None or id(b) in self.right:
            return known is b
        if not self.fields(a, b, binding):
            return False
        self.left[id(a)] = b
        self.right[id(b)] = a
        return True

    def fields(self, a: Any, b: Any, binding: bool) -> bool:
        for field in a.compared_fields:
            x, y = getattr(a, field.name), getattr(b, field.name)
            if x is y and not isinstance(x, (Node, tuple, Mapping)):
                continue
            if not self.equal(x, y, _binds(a, field, binding)):
                return self._step(AccessKind.ATTR, field.alias)
        return True

    def equal(self, a: Any, b: Any, binding: bool = False) -> bool:
        if isinstance(a, Node):
            if not _same_kind(a, b):
                return _same_integer(b, a)
            if a.is_variable:
                return self.variables(a, b, binding)
            if isinstance(a, (Op, Type)):
                return a == b
            if isinstance(a, FloatImm):
                return a.dtype == b.dtype and same_float(a.value, b.value)
            if a.is_shared:
                return self.shared(a, b, binding)
            return self.fields(a, b, binding)
        if is_sequence(a):
            return self.sequences(a, b, binding)
        if is_mapping(a):
            return self.mappings(a, b, binding)
        if isinstance(a, np.ndarray) or hasattr(a, "__dlpack__"):
            return same_array(a, b)
        if type(a) is float and type(b) is float:
            return same_float(a, b)
        return (type(a) is type(b) and a == b) or _same_integer(a, b)

    def sequences(self, a: Any, b: Any, binding: bool) -> bool:
        if not is_sequence(b):
            return False
        common = min(len(a), len(b))
        for i in range(common):
            if not self.equal(a[i], b[i], binding):
                return self._step(AccessKind.ARRAY_ITEM, i)
        if len(a) == len(b):
            return True
        kinds = AccessKind.ARRAY_ITEM, AccessKind.ARRAY_ITEM_MISSING
        left, right = kinds if len(a) > common else kinds[::-1]
        return self._step(left, common, right, common)

    def mappings(self, a: Any, b: Any, binding: bool) -> bool:
        if not is_mapping(b):
            return False
        functions = {key.name_hint: key for key in b if isinstance(key, GlobalVar)}
        matched: set[Any] = set()
        for key, value in a.items():
            other = self.left.get(id(key), key) if isinstance(key, Node) else key
            if isinstance(key, GlobalVar) and key.name_hint in functions:
                other = functions[key.name_hint]
                self.left[id(key)], self.right[id(other)] = other, key
            if other not in b:
                return self._step(AccessKind.MAP_ITEM, key, AccessKind.MAP_ITEM_MISSING, key)
            if not self.equal(value, b[other], binding):
                return self._step(AccessKind.MAP_ITEM, key, AccessKind.MAP_ITEM, other)
            matched.add(other)
        if len(a) == len(b):
            return True
        extra = next(key for key in b if key not in matched)
        return self._step(AccessKind.MAP_ITEM_MISSING, extra, AccessKind.MAP_ITEM, extra)


def _same_kind(a: Any, b: Any) -> bool:
    """Whether two nodes are of one kind: a subclass may go by its base's key."""
    return type(a) is type(b) or (isinstance(b, Node) and a.type_key == b.type_key)


def _same_integer(number: Any, constant: Any) -> bool:
    """Whether an attribute's integer is a constant's: programs may write either."""
    return type(number) is int and isinstance(constant, IntImm) and constant.value == number


def _binds(node: Any, field: Field, binding: bool) -> bool:
    """Whether unbound variables below a field are bound there, of a node that stands in a binder if `binding` says so.

    All variables of an extent such as `n * 2` are.
    """
    return field.kind == "binder" or (binding and (field.defines or isinstance(node, PrimExpr)))


def same_float(a: float, b: float) -> bool:
    """Whether two floats are the same value: 0.0 and -0.0 are two, all NaNs are one."""
    return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)


def same_array(a: Any, b: Any) -> bool:
    """Whether two tensors have equal dtype, shape and bits."""
    if a is b:
        return True
    x, y = np.asarray(a), np.asarray(b)
    return x.dtype == y.dtype and x.shape == y.shape and np.array_equal(_bytes_of(x), _bytes_of(y))


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """What an array holds, as bytes; copied only if it does not lie in one piece."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _compare(lhs: Any, rhs: Any, map_free_vars: bool) -> tuple[bool, _Comparison]:
    comparison = _Comparison(map_free_vars)
    with deep_recursion:
        return comparison.equal(lhs, rhs), comparison


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two structures are the same up to the names of bound variables.

    Free variables must be identical objects, or, with `map_free_vars`, correspond one to one.
    """
    return _compare(lhs, rhs, map_free_vars)[0]


def get_first_structural_mismatch(
    lhs: Any, rhs: Any, map_free_vars: bool = False
) -> tuple[AccessPath, AccessPath] | None:
    """The paths to the first difference in either structure; None when they are equal."""
    same, comparison = _compare(lhs, rhs, map_free_vars)
    return None if same else comparison.paths()


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises a `StructuralMismatch` that shows both structures, with the first difference underlined."""
    same, comparison = _compare(lhs, rhs, map_free_vars)
    if same:
        return
    left, right = comparison.paths()
    raise StructuralMismatch(
        f"StructuralEqual check failed, caused by lhs at {left}:\n{_underlined(lhs, left)}\n"
        f"and rhs at {right}:\n{_underlined(rhs, right)}"
    )


def _underlined(value: Any, path: AccessPath) -> str:
    """A structure as text, underlined at a path where it prints as a script."""
    if isinstance(value, Node) and text_of.is_provided and text_of(value) is not None:
        return value.script(path_to_underline=[path], syntax_sugar=False)
    return str(value)


class _Digest:
    """Feeds a structure, as tokens, to a hash function; bound variables count by the order of their definition.

    An exact one also covers what equality ignores, and raises for values that it cannot digest.
    """

    def __init__(self, map_free_vars: bool, exact: bool = False):
        self.map_free_vars, self.exact = map_free_vars, exact
        self.fields = _exact_fields if exact else _digest_fields
        self.tokens: list[str] = []
        self.numbers: dict[int, int] = {}
        self.arrays: list[tuple[int, np.ndarray]] = []
        """The places of tokens that the bytes of arrays are to follow."""
        self.operators: set[Op] = set()

    def add(self, value: object, binding: bool = False) -> None:
        _digest_rule(type(value))(self, value, binding)

    def node(self, node: Node, binding: bool) -> None:
        self.tokens.append(node.type_key)
        for name, always, bound in self.fields(type(node)):
            self.add(getattr(node, name, None), always or (binding and bound))

    def operator(self, value: Op, binding: bool) -> None:
        self.tokens.append(f"op {value.name}")
        self.operators.add(value)

    def shared(self, node: Any, binding: bool) -> None:
        number = self.numbers.get(id(node))
        if number is not None:
            self.tokens.append(f"#{number}")
            return
        if node.is_variable and not (binding or self.map_free_vars):
            # The dtype of a variable of a graph is a number of the running program.
            dtype = "" if hasattr(node, "struct_info_") else getattr(node, "dtype", "")
            self.tokens.append(f"free {node.name} {dtype}")
            return
        self.node(node, binding)
        self.numbers[id(node)] = len(self.numbers)

    def sequence(self, value: Any, binding: bool) -> None:
        self.tokens.append(f"[{len(value)}")
        for item in value:
            self.add(item, binding)

    def mapping(self, value: Any, binding: bool) -> None:
        self.tokens.append("{" + str(len(value)))
        items = list(value.items())
        if any(isinstance(key, Node) for key, _ in items):
            # Keys are variables defined before (parameters), whose numbers order them, or names of functions.
            items.sort(key=lambda item: (self.numbers.get(id(item[0]), -1), getattr(item[0], "name_hint", "")))
        else:
            items.sort(key=lambda item: str(item[0]))
        for key, item in items:
            self.add(key)
            self.add(item, binding)

    def array(self, value: Any, binding: bool) -> None:
        array = np.asarray(value)
        self.arrays.append((len(self.tokens), array))
        self.tokens.append(f"array {array.dtype} {array.shape}")

    def float(self, value: float, binding: bool) -> None:
        self.tokens.append("nan" if math.isnan(value) else value.hex())

    def enumeration(self, value: Enum, binding: bool) -> None:
        self.tokens.append(f"{type(value).__name__}.{value.name}")

    def plain(self, value: Any, binding: bool) -> None:
        if self.exact and not (value is None or isinstance(value, (str, int, bytes))):
            raise TypeMismatch(f"a {type(value).__name__} has no digest that tells it from every other one")
        self.tokens.append(f"{type(value).__name__} {value!r}")

    def result(self) -> bytes:
        """The digest of what has been added."""
        places: dict[tuple[int, str], list[int]] = {}
        distinct: list[memoryview] = []
        for place, array in self.arrays:
            # Weights that several constants share are read once.
            key = array.__array_interface__["data"][0], f"{array.dtype} {array.shape} {array.strides}"
            if key not in places:
                distinct.append(_bytes_of(array).data)
            places.setdefault(key, []).append(place)
        for found, content in zip(places.values(), digests(distinct), strict=True):
            for place in found:
                self.tokens[place] += f" {content.hex()}"
        return hashlib.blake2b("\0".join(self.tokens).encode(), digest_size=16).digest()


@functools.cache
def _digest_rule(cls: type[object]) -> Callable[[_Digest, Any, bool], None]:
    """The function that turns values of a class into tokens."""
    if issubclass(cls, Node):
        if issubclass(cls, Op):
            return _Digest.operator
        return _Digest.shared if cls.is_variable or cls.is_shared else _Digest.node
    if hasattr(cls, "__dlpack__"):
        return _Digest.array
    kinds = ((tuple, list), _Digest.sequence), (Mapping, _Digest.mapping), (float, _Digest.float)
    found = next((rule for kind, rule in kinds if issubclass(cls, kind)), None)
    return found or (_Digest.enumeration if issubclass(cls, Enum) else _Digest.plain)


@functools.cache
def _digest_fields(cls: type[Node]) -> list[tuple[str, bool, bool]]:
    """The compared fields of a class, but for the names of variables: name, and when unbound variables are bound.

    That is always, or if the node stands in a binder.
    """
    return [
        (f.name, f.kind == "binder", f.defines or issubclass(cls, PrimExpr))
        for f in cls.compared_fields
        if not (cls.is_variable and f.name == "name")
    ]


@functools.cache
def _exact_fields(cls: type[Node]) -> list[tuple[str, bool, bool]]:
    """All that a node is made of: names of variables, spans and what was inferred as well.

    The struct info of a `GlobalVar` is left out: it is set at some time, and follows from the function.
    """
    others = [f for f in cls.node_fields if f not in cls.compared_fields and (f.kind == "meta" or f.saved)]
    others = [f for f in others if f.kind == "meta" or not issubclass(cls, GlobalVar)]
    return [
        (f.name, f.kind == "binder", f.defines or issubclass(cls, PrimExpr)) for f in (*cls.compared_fields, *others)
    ]


def structural_digest(node: Any, map_free_vars: bool = False) -> bytes:
    """A 16-byte digest; structurally equal values have equal digests, in every process."""
    digest = _Digest(map_free_vars)
    with deep_recursion:
        digest.add(node)
    return digest.result()


def exact_digest(node: Any, most_bytes: int) -> bytes | None:
    """A 16-byte digest that covers names and spans as well: no pass can tell values of equal digests apart.

    None for a structure with more bytes of arrays, which take long to read, or that holds something other than nodes,
    plain values, arrays and tensors.
    """
    digest = _Digest(False, exact=True)
    try:
        with deep_recursion:
            digest.add(node)
    except TypeMismatch:
        return None
    return digest.result() if sum(array.nbytes for _, array in digest.arrays) <= most_bytes else None


def operators_in(node: Any) -> set[Op]:
    """The operators anywhere in a structure: in calls, attributes, struct infos."""
    digest = _Digest(False)
    with deep_recursion:
        digest.add(node)
    return digest.operators


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """The digest as a signed 64-bit integer."""
    return int.from_bytes(structural_digest(node, map_free_vars)[:8], "little", signed=True)


@equal_exprs.provide
def _equal_exprs(a: Any, b: Any) -> bool:
    return _Comparison(False).equal(a, b)
