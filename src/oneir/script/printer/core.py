"""The printer of TVMScript: names, scopes and lines; what each node looks like is said by the dialects.

    @prints(While)
    def _while(p: Printer, loop: While) -> None:
        header = f"while {p.expr(loop.condition)}:"
        with p.scope(loop, header, loop):
            body(p, loop.body)

A function that prints an expression returns its text; one that prints a statement emits lines. A frame is a scope of
names, and the list of lines of that scope; a free variable is declared in the innermost frame that holds all its uses.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable
from typing import Any

from ...ir.node import Node
from ...runtime.script_printer import PrinterConfig
from .decorate import mark
from .paths import Occurrences, node_at

Handler = Callable[["Printer", Any], Any]
_handlers: dict[str, dict[type, Handler]] = {"": {}}
_RESERVED = frozenset(keyword.kwlist) | {"range", "metadata"}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def prints(*classes: type, dialect: str = "") -> Callable[[Handler], Handler]:
    """Registers how nodes of some classes print; inside of frames of `dialect` only, when one is given."""

    def register(handler: Handler) -> Handler:
        table = _handlers.setdefault(dialect, {})
        for cls in classes:
            table[cls] = handler
        return handler

    return register


def find_handler(cls: type, dialect: str = "") -> Handler | None:
    """What prints nodes of a class: the dialect's handler for it or its nearest base, else the general one."""
    for table in (_handlers.get(dialect, {}), _handlers[""]):
        for base in cls.__mro__:
            if base in table:
                return table[base]
    return None


class Operation(str):
    """The text of an expression that needs parentheses inside of a tighter one; `level` says how tight it is itself."""

    __slots__ = ("level",)
    level: int

    @staticmethod
    def of(text: str, level: int) -> Operation:
        """The text with its level."""
        self = Operation(text)
        self.level = level
        return self


class Frame:
    """A scope: the node that opened it, its lines, and what was named in it."""

    __slots__ = ("dialect", "is_last", "lines", "node", "pad", "printer", "undo")

    def __init__(self, printer: Printer, node: Any, lines: list[str], pad: str, dialect: str):
        self.printer = printer
        self.node = node
        self.lines = lines
        self.pad = pad
        self.dialect = dialect
        self.is_last = True
        self.undo: list[tuple[int, str, int] | tuple[int, None, int]] = []

    def __enter__(self) -> Frame:
        self.printer.enter(self)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.printer.leave(self)


class Scope(Frame):
    """A frame whose lines are indented below a header."""

    __slots__ = ("above", "header", "nodes")

    header: str
    nodes: tuple[Any, ...]

    def __init__(self, printer: Printer, node: Any, lines: list[str], pad: str, dialect: str):
        super().__init__(printer, node, lines, pad, dialect)
        self.above: list[str] = []

    def __exit__(self, kind: object, *_: object) -> None:
        printer = self.printer
        printer.leave(self)
        printer.frame.lines.extend(self.above)
        if kind is None:
            printer.emit(self.header, *self.nodes, opens=True)
            printer.frame.lines.extend(self.lines or [self.pad + "pass"])


class Printer:
    """One run of the printer."""

    def __init__(self, config: PrinterConfig, root: Any, occurrences: Occurrences | None = None):
        self.config = config
        self.root = root
        self.indent = " " * config.indent_spaces
        self.int_dtype = config.int_dtype
        self.float_dtype = config.float_dtype
        self.used_dialects: set[str] = set()
        self.binding_names: list[str] = [config.name] if config.name else []
        self.metadata: dict[str, list[Any]] = {}
        self._metadata_index: dict[int, int] = {}
        self.loops: dict[int, Any] = {}
        self._taken = {config.ir_prefix, config.tir_prefix, config.relax_prefix} | _RESERVED
        if config.module_alias:
            self._taken.add(config.module_alias)
        self._names: dict[int, str] = {}
        self._next_index: dict[str, int] = {}  # below it, every name with that suffix is taken
        self._tables: dict[str, dict[type, Handler]] = {}
        self._ancestors: Ancestors | None = None
        self._underlined = {id(node) for node in config.obj_to_underline}
        self._comments = {id(node): text for node, text in config.obj_to_annotate.items()}
        self._comments.update((id(node_at(root, path)), text) for path, text in config.path_to_annotate.items())
        self._occurrences = occurrences
        self._decorated = bool(self._underlined or self._comments or occurrences)
        self.frames: list[Frame] = []
        self.enter(Frame(self, None, [], "", ""))

    # -- frames --

    def enter(self, frame: Frame) -> None:
        """Makes a frame the current one."""
        self.frames.append(frame)
        self.frame = frame
        self._table = self._tables.setdefault(frame.dialect, {})

    def leave(self, frame: Frame) -> None:
        """Ends the current frame: its names are free again."""
        assert self.frames.pop() is frame
        for key, name, index in reversed(frame.undo):
            text = self._names.pop(key)
            if name is not None:
                self._taken.discard(text)
                self._next_index[name] = min(index, self._next_index[name])
        self.frame = self.frames[-1]
        self._table = self._tables[self.frame.dialect]

    def scope(self, node: Any, header: str, *nodes: Any, dialect: str | None = None) -> Scope:
        """A frame whose lines stand indented below `header`, the text of `nodes`."""
        here = self.frame
        scope = Scope(self, node, [], here.pad + self.indent, here.dialect if dialect is None else dialect)
        scope.header, scope.nodes = header, nodes
        return scope

    def branch(self, node: Any, header: str, first: int) -> Scope:
        """A scope that follows others, whose lines began at line `first`: what it needs is declared above them all."""
        scope, lines = self.scope(node, header), self.frame.lines
        scope.above = lines[first:]
        del lines[first:]
        return scope

    def concise(self, node: Any) -> Frame:
        """A frame whose lines stand at the current indentation, after the current lines."""
        return Frame(self, node, self.frame.lines, self.frame.pad, self.frame.dialect)

    def emit(self, text: str, *nodes: Any, opens: bool = False) -> None:
        """Adds a line, the text of `nodes`; `opens` says that an indented body follows."""
        frame = self.frame
        if self._decorated:
            occurrences = self._occurrences
            if occurrences is not None:
                occurrences.meet(nodes)
            if any(id(node) in self._underlined or (occurrences and occurrences.is_wanted(node)) for node in nodes):
                text = mark(text)
            for comment in [self._comments[id(node)] for node in nodes if id(node) in self._comments]:
                if opens:
                    frame.lines.append(f"{frame.pad}# {comment}")
                else:
                    text = f"{text}  # {comment}"
        frame.lines.append(frame.pad + text)

    def has_comment(self, node: Any) -> bool:
        """Whether a comment is to be written at a node."""
        return id(node) in self._comments

    # -- dispatch --

    def expr(self, node: Any) -> str:
        """The text of a node, or of a plain value; nothing, with lines emitted, for a statement."""
        cls = type(node)
        handler = self._table.get(cls) or self._find(cls)
        text: str = handler(self, node) if self._occurrences is None else self._at_occurrence(handler, node)
        if self._decorated and text and id(node) in self._underlined:
            return _mark_expr(text)
        return text

    def stmt(self, node: Any) -> None:
        """Prints a statement."""
        cls = type(node)
        handler = self._table.get(cls) or self._find(cls)
        if self._occurrences is None:
            handler(self, node)
        else:
            self._at_occurrence(handler, node)

    def within(self, node: Any, write: Handler) -> str:
        """The text that `write` gives for a node that prints otherwise elsewhere, a declaration for instance."""
        return write(self, node) if self._occurrences is None else self._at_occurrence(write, node)

    def _at_occurrence(self, handler: Handler, node: Any) -> Any:
        """What a handler gives, underlined where an access path leads: the text, or all lines of a statement."""
        assert self._occurrences is not None
        wanted = self._occurrences.is_wanted(node)
        lines, first = self.frame.lines, len(self.frame.lines)
        self._occurrences.enter(node)
        text = handler(self, node)
        self._occurrences.leave()
        if not wanted:
            return text
        if text is not None:
            return _mark_expr(text)
        for i in range(first, len(lines)):
            code = lines[i].lstrip(" ")
            lines[i] = lines[i][: len(lines[i]) - len(code)] + (mark(code) if code else "")
        return None

    def _find(self, cls: type) -> Handler:
        handler = find_handler(cls, self.frame.dialect) or Printer.add_metadata
        self._table[cls] = handler
        return handler

    def operand(self, node: Any, level: int) -> str:
        """The text of a node, in parentheses if it binds less tightly than `level`."""
        text = self.expr(node)
        return f"({text})" if isinstance(text, Operation) and text.level < level else text

    def exprs(self, nodes: Iterable[Any]) -> str:
        """The texts of several nodes, separated by commas."""
        return ", ".join([self.expr(node) for node in nodes])

    def tuple_of(self, nodes: Iterable[Any]) -> str:
        """The texts of several nodes as a tuple."""
        texts = [self.expr(node) for node in nodes]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def ir(self, name: str) -> str:
        """A name of the module dialect."""
        self.used_dialects.add("ir")
        return f"{self.config.ir_prefix}.{name}"

    def tir(self, name: str) -> str:
        """A name of the loop dialect."""
        self.used_dialects.add("tir")
        return f"{self.config.tir_prefix}.{name}"

    def relax(self, name: str) -> str:
        """A name of the graph dialect."""
        self.used_dialects.add("relax")
        return f"{self.config.relax_prefix}.{name}"

    def add_metadata(self, node: Any) -> str:
        """The text by which an object without text of its own is found in the metadata."""
        key = node.type_key if isinstance(node, Node) else f"runtime.{type(node).__name__}"
        objects = self.metadata.setdefault(key, [])
        index = self._metadata_index.setdefault(id(node), len(objects))
        if index == len(objects):
            objects.append(node)
        return f'metadata["{key}"][{index}]'

    # -- names --

    def define(self, node: Any, name: str, frame: Frame | None = None) -> str:
        """Names a node in a frame, the current one unless given: `name`, made unique. A name that it has stays."""
        found = self._names.get(id(node))
        if found is not None:
            return found
        name = _NOT_IN_NAMES.sub("_", name)
        if name[:1].isdigit():
            name = f"_{name}"
        if self.config.show_object_address:
            name = f"{name}_{id(node):#x}"
        index = self._next_index.get(name, 0)
        while (unique := f"{name}_{index}" if index else name) in self._taken:
            index += 1
        self._next_index[name] = index + 1
        self._taken.add(unique)
        self._names[id(node)] = unique
        (frame or self.frame).undo.append((id(node), name, index))
        return unique

    def define_as(self, node: Any, text: str, frame: Frame | None = None) -> None:
        """Lets a node print as a text, `A.strides[0]` for instance, as long as a frame lasts."""
        if id(node) not in self._names:
            self._names[id(node)] = text
            (frame or self.frame).undo.append((id(node), None, 0))

    def name_of(self, node: Any) -> str | None:
        """What a node is called; None when it has no name yet."""
        return self._names.get(id(node))

    def set_root(self, root: Any) -> Any:
        """Says below which node the uses of a free variable are looked for; returns the previous one."""
        previous, self.root, self._ancestors = self.root, root, None
        return previous

    def holds_every_use(self, node: Any, var: Any) -> bool:
        """Whether every use of `var` stands inside of `node`."""
        return any(ancestor is node for ancestor in self._ancestors_of(var))

    def declaring_frame(self, var: Any) -> Frame:
        """The innermost frame around every use of `var`."""
        frames = {id(frame.node): frame for frame in self.frames if frame.node is not None}
        for ancestor in self._ancestors_of(var):
            frame = frames.get(id(ancestor))
            if frame is not None:
                return frame
        return self.frames[0]

    def _ancestors_of(self, var: Any) -> list[Any]:
        if self._ancestors is None:
            self._ancestors = Ancestors(self.root)
        return self._ancestors.of(var)


def _mark_expr(text: str) -> str:
    """The text of an expression, to be underlined; as tight as before."""
    marked = mark(text)
    return Operation.of(marked, text.level) if isinstance(text, Operation) else marked


class Ancestors:
    """For every variable and buffer below a root, the nodes that hold all of its uses."""

    def __init__(self, root: Any):
        # Each entry is a node with the entry of its parent and its depth.
        self._lowest: dict[int, tuple[Any, Any, int]] = {}
        stack: list[tuple[Any, Any, int]] = [(root, None, 0)]
        seen: set[int] = set()
        while stack:
            entry = stack.pop()
            node, _, depth = entry
            if isinstance(node, Node):
                if node.is_variable or node.type_key == "tir.Buffer":
                    known = self._lowest.get(id(node))
                    self._lowest[id(node)] = entry if known is None else _common(known, entry)
                if id(node) in seen:
                    continue
                seen.add(id(node))
                children: Iterable[Any] = [getattr(node, f.name) for f in node.init_fields]
            elif isinstance(node, (tuple, list)):
                children = node
            elif isinstance(node, dict):
                children = [*node.keys(), *node.values()]
            else:
                continue
            parent = entry if isinstance(node, Node) else entry[1]
            stack += [(child, parent, depth + 1) for child in children if isinstance(child, (Node, tuple, list, dict))]

    def of(self, var: Any) -> list[Any]:
        """The nodes that hold every use of `var`, innermost first."""
        entry = self._lowest.get(id(var))
        out = []
        while entry is not None:
            out.append(entry[0])
            entry = entry[1]
        return out


def _common(a: Any, b: Any) -> Any:
    """The deepest entry above both."""
    while a is not b and (a is None or b is None or a[0] is not b[0]):
        if a is None or b is None:
            return None
        if a[2] >= b[2]:
            a = a[1]
        else:
            b = b[1]
    return a
