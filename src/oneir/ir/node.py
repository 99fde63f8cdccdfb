"""How a node is declared: a slotted class with typed fields, from which everything else derives.

    class For(Stmt):
        loop_var: Var = binder()
        min: PrimExpr
        extent: PrimExpr
        kind: ForKind = attr()
        body: Stmt

The constructor is generated at once; visiting and mapping on first use; structural equality, hash and JSON read the
field list. A field is one of

- child: a node, an `Array` of nodes or a mapping to nodes; visited and mapped. The default for node-typed fields.
- attr: plain data (numbers, strings, enumerations, containers of them, possibly with nodes inside); compared, not
visited.
- binder: what it holds defines variables for the other fields. Structural equality visits binders first.
- derived: computed by `_derive` from the others; neither an argument nor compared.
- meta: carried along, outside of equality (spans).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

from ..runtime.hook import Hook
from ..runtime.object import Object
from ..runtime.script_printer import Scriptable
from .container import EMPTY, Array, map_array, map_mapping

T = TypeVar("T")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


_MISSING: Any = _Missing()
_PLAIN = {"str", "int", "bool", "float", "bytes", "DataType", "None"}
node_classes: dict[str, type[Node]] = {}
"""Every node class by its type key, "tir.For" for instance; what JSON reads names back from."""


class Field:
    """One declared field of a node class; made by `child`, `attr`, `binder`, `derived` or `meta`."""

    __slots__ = ("alias", "compared", "converter", "default", "deferred", "defines", "kind", "name", "saved", "shape")

    def __init__(
        self,
        kind: str,
        default: Any = _MISSING,
        converter: Callable[[Any], Any] | None = None,
        defines: bool = False,
        alias: str = "",
        saved: bool = True,
        compared: bool = True,
        deferred: bool = False,
    ):
        self.name = ""
        self.alias = alias  # the constructor's name for the field, where that is another than the field's
        self.kind = kind
        self.default = default
        self.converter = converter
        self.deferred = deferred
        self.defines = defines
        self.saved = saved
        self.compared = compared and kind not in ("derived", "meta")
        self.shape = "one"  # "one", "optional", "array", "optional array", "mapping"


def child(
    *,
    default: Any = _MISSING,
    converter: Callable[[Any], Any] | None = None,
    deferred: bool = False,
    defines: bool = False,
    alias: str = "",
) -> Any:
    """A visited field. `defines`: when the node stands in a binder, unbound variables found here are bound by it.

    `deferred`: the converter only declares what the constructor takes; `_derive`, which sees all fields, converts.
    """
    return Field("child", default, converter, defines, alias, deferred=deferred)


def attr(
    *,
    default: Any = _MISSING,
    converter: Callable[[Any], Any] | None = None,
    defines: bool = False,
    alias: str = "",
    compared: bool = True,
) -> Any:
    """A field of plain data. `defines` as of a child: in a binder, unbound variables inside are bound by it.

    One that is not `compared` is outside of equality.
    """
    return Field("attr", default, converter, defines, alias, compared=compared)


def binder(
    *,
    default: Any = _MISSING,
    converter: Callable[[Any], Any] | None = None,
    deferred: bool = False,
    alias: str = "",
) -> Any:
    """A field whose variables are defined here. `deferred` as of a child."""
    return Field("binder", default, converter, alias=alias, deferred=deferred)


def derived(*, saved: bool = False, init: Literal[False] = False) -> Any:
    """A slot that `_derive` fills from the other fields. `saved`: JSON keeps it, for it may be filled in later.

    `init` says to type checkers that it is no argument of the constructor.
    """
    return Field("derived", None, saved=saved)


def meta(*, default: Any, kw_only: Literal[True] = True) -> Any:
    """A field outside of equality, after all others in the constructor.

    `kw_only` says to type checkers that it is given by name, since they order fields by declaration.
    """
    return Field("meta", default)


def _classify(annotation: str) -> Field:
    words = set(re.findall(r"\w+", annotation))
    return Field("attr" if words <= _PLAIN else "child")


def _shape_of(annotation: str) -> str:
    if annotation.startswith("Mapping["):
        return "mapping"
    optional = annotation.endswith("| None")
    if annotation.startswith("Array["):
        return "optional array" if optional else "array"
    return "optional" if optional else "one"


def as_array(values: Iterable[T] | None) -> Array[T]:
    """The converter of array fields: any iterable as an `Array`; a lone node, too, and none for None."""
    elements: Any = (values,) if isinstance(values, Node) else values or ()
    return Array(elements)


@dataclass_transform(eq_default=False, field_specifiers=(child, attr, binder, derived, meta))
class NodeMeta(type):
    """Reads the declaration of a node class, lays out its slots and writes its constructor.

    `shared`: a node that stands in several places stays one object. `key`: its name in JSON, where that is not
    "package.Class". `init=False`: the constructor is the one that a base class wrote by hand.

    To type checkers a node class is a dataclass: for each field, in the order of declaration, the constructor takes
    what the field's converter takes.
    """

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        shared: bool = False,
        key: str = "",
        init: bool = True,
    ):
        own: dict[str, Field] = {}
        slots = list(namespace.get("__slots__", ()))
        for field_name, annotation in namespace.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            declared = namespace.pop(field_name, _MISSING)
            if isinstance(declared, Field):
                field = declared
            else:
                field = _classify(annotation)
                field.default = declared
            field.name, field.shape = field_name, _shape_of(annotation)
            field.alias = field.alias or field_name
            own[field_name] = field
            if not any(field_name in base.__dict__ for parent in bases for base in parent.__mro__):
                slots.append(field_name)
        namespace["__slots__"] = tuple(slots)
        cls: Any = super().__new__(mcs, name, bases, namespace)
        inherited = {f.name: f for base in reversed(cls.__mro__[1:]) for f in base.__dict__.get("_own_fields", ())}
        cls._own_fields = tuple(own.values())
        merged = {**{name: f for name, f in inherited.items() if name not in own}, **own}
        ordered = [f for f in merged.values() if f.kind != "meta"] + [f for f in merged.values() if f.kind == "meta"]
        cls.node_fields = tuple(ordered)
        cls.init_fields = tuple(f for f in ordered if f.kind != "derived")
        cls.saved_fields = tuple(f for f in ordered if f.saved)
        cls.compared_fields = tuple(sorted((f for f in ordered if f.compared), key=lambda f: f.kind != "binder"))
        cls.is_shared = shared or any(getattr(base, "is_shared", False) for base in bases)
        cls.has_children = bool(visited_fields(cls))
        cls.__match_args__ = tuple(f.name for f in ordered if f.kind not in ("derived", "meta"))
        package = namespace["__module__"].removeprefix("oneir.").split(".")[0]
        cls.type_key = key or f"{package}.{name}"
        if not key or key not in node_classes:  # a subclass under the key of its base is read back as that one
            node_classes[cls.type_key] = cls
        if "__init__" in namespace:
            cls._keyword_init = True
        elif init and (own or "_derive" in namespace):
            cls._keyword_init = False
            _write_init(cls)
        return cls


def compile_function(cls: Any, name: str, lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    """Compiles a function that was written for a node class."""
    exec(compile("\n".join(lines), f"<{cls.__name__}.{name}>", "exec"), scope)
    function = scope[name]
    function.__qualname__ = f"{cls.__qualname__}.{name}"
    function.__module__ = cls.__module__
    return function


def _write_init(cls: Any) -> None:
    scope: dict[str, Any] = {"Array": Array, "as_array": as_array, "EMPTY": EMPTY}
    arguments = ["self"]
    body: list[str] = []
    for field in cls.init_fields:
        name = field.alias
        if field.default is _MISSING:
            arguments.append(name)
        else:
            scope[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
        value = name
        if field.converter is as_array:
            value = f"{name} if type({name}) is Array else as_array({name})"
        elif field.converter is not None and not field.deferred:
            scope[f"convert_{name}"] = field.converter
            value = f"convert_{name}({name})"
            if isinstance(field.converter, type):  # most values are of the class that they are converted to
                value = f"{name} if {name}.__class__ is convert_{name} else {value}"
        elif field.shape == "mapping":
            value = f"{name} or EMPTY"
        body.append(f"    self.{field.name} = {value}")
    if hasattr(cls, "_derive"):
        body.append("    self._derive()")
    lines = [f"def __init__({', '.join(arguments)}):", *(body or ["    pass"])]
    cls.__init__ = compile_function(cls, "__init__", lines, scope)


def visited_fields(cls: Any) -> list[Field]:
    """The fields of a node class that visitors visit."""
    return [f for f in cls.node_fields if f.kind in ("child", "binder")]


def _write_visit(cls: Any) -> None:
    """`visit_children(f)`: calls `f` on every node held by a child or binder field, in the order of the fields.

    Variables in binder fields are left out: they are definitions, not uses.
    """
    lines = ["def visit_children(self, f):"]
    for field in visited_fields(cls):
        value = f"self.{field.name}"
        guard = " if not e.is_variable" if field.kind == "binder" else ""
        if field.shape in ("array", "mapping", "optional array"):
            values = f"({value} or ())" if field.shape == "optional array" else value
            values = f"{value}.values()" if field.shape == "mapping" else values
            lines += [f"    for e in {values}:", f"        {'if not e.is_variable: ' if guard else ''}f(e)"]
        else:
            lines += [
                f"    e = {value}",
                f"    if isinstance(e, Node){' and not e.is_variable' if guard else ''}: f(e)",
            ]
    cls.visit_children = compile_function(cls, "visit_children", [*lines, "    return None"], {"Node": Node})


def _write_map(cls: Any) -> None:
    """`map_children(f)`: the node with `f` over its children; the identical node when nothing changed."""
    lines = ["def map_children(self, f):"]
    changed: list[str] = []
    for field in visited_fields(cls):
        name, keep = field.name, "not e.is_variable" if field.kind == "binder" else ""
        lines.append(f"    e = self.{name}")
        if field.shape in ("array", "mapping", "optional array"):
            mapper = "map_mapping" if field.shape == "mapping" else "map_array"
            function = "lambda v: v if v.is_variable else f(v)" if keep else "f"
            none = "e if e is None else " if field.shape == "optional array" else ""
            lines.append(f"    new_{name} = {none}{mapper}(e, {function}) if e else e")
        else:
            lines.append(f"    new_{name} = f(e) if isinstance(e, Node){' and ' + keep if keep else ''} else e")
        changed.append(f"new_{name} is self.{name}")
    lines += [f"    if {' and '.join(changed)}: return self"] if changed else []
    lines.append(f"    return {rebuilding(cls)}" if changed else "    return self")
    scope = {"Node": Node, "map_array": map_array, "map_mapping": map_mapping, "cls": cls}
    cls.map_children = compile_function(cls, "map_children", lines, scope)


def rebuilding(cls: Any) -> str:
    """The text of a call that makes a node like `self` with what the variables `new_x` hold in its visited fields."""
    arguments = [
        (f"{f.alias}=" if cls._keyword_init else "")
        + (f"new_{f.name}" if f.kind in ("child", "binder") else f"self.{f.name}")
        for f in cls.init_fields
    ]
    return f"cls({', '.join(arguments)})"


class Node(Object, Scriptable, metaclass=NodeMeta):
    """Base of everything in the IR: immutable by convention, compared by identity."""

    __slots__ = ()
    node_fields: ClassVar[tuple[Field, ...]]
    init_fields: ClassVar[tuple[Field, ...]]
    saved_fields: ClassVar[tuple[Field, ...]]
    compared_fields: ClassVar[tuple[Field, ...]]
    is_shared: ClassVar[bool]
    has_children: ClassVar[bool]
    _keyword_init: ClassVar[bool] = False
    is_variable: ClassVar[bool] = False
    type_key: ClassVar[str]

    def visit_children(self, f: Callable[[Any], Any]) -> None:
        _write_visit(type(self))
        self.visit_children(f)

    def map_children(self, f: Callable[[Any], Any]) -> Any:
        _write_map(type(self))
        return self.map_children(f)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; the identical node if they are what it has."""
        for name, value in changes.items():
            if getattr(self, name, _MISSING) is not value:
                break
        else:
            return self
        arguments = {
            f.alias: changes.pop(f.name) if f.name in changes else getattr(self, f.name) for f in self.init_fields
        }
        if changes:
            known = ", ".join(f.name for f in self.init_fields)
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(changes))}; it has {known}")
        return type(self)(**arguments)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled and copied as JSON: a node that stands in several places stays one, and no tree is too deep."""
        return reduce_node(self)

    def __str__(self) -> str:
        text = text_of(self) if text_of.is_provided else None
        if text is not None:
            return text
        arguments = ", ".join(f"{f.name}={getattr(self, f.name, None)!r}" for f in self.compared_fields)
        return f"{type(self).__name__}({arguments})"

    def __repr__(self) -> str:
        return self.__str__()


reduce_node: Hook[[Node], tuple[object, ...]] = Hook("reduce_node", "oneir.ir.json")
"""What `__reduce__` of a node gives."""

reduce_node: Hook[[Node], tuple[object, ...]] = Hook("reduce_node", "oneir.ir.json")
"""What `__reduce__` of a node gives."""

text_of: Hook[[Any], str | None] = Hook("text_of", "oneir.script.printer")
"""How a node prints; None leaves it to its fields."""
