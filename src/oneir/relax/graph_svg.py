"""A graph function as a picture: its calls as boxes, from the parameters at the top down to the result, as SVG.

    Path("model.svg").write_text(graph_svg(module))

Constants and shapes are left out, tuples are seen through. A box with a thick border is a kernel (`call_tir`) or
another function. Lines have the colour of the text around the picture, so it fits light and dark pages.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..ir.expr import GlobalVar, IntImm
from ..ir.module import IRModule
from ..ir.op import Op
from ..runtime.error import TypeMismatch
from ..runtime.script_printer import picture_of
from .expr import Call, Expr, ExternFunc, Function, If, SeqExpr, ShapeExpr, StringImm, Tuple, TupleGetItem, Var
from .struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo

MAX_BOXES = 150
"""Notebooks show no picture of a graph with more boxes: nobody reads it."""

_LETTER, _LINE, _GAP, _ROW = 7.2, 16, 22, 34
_OF_OPERATORS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed", "relax.call_pure_packed")


@dataclass(slots=True, eq=False)
class _Box:
    """A parameter, a call or a result; without a text, the bend of a line that passes a row."""

    text: tuple[str, ...] = ()
    kind: str = "bend"
    above: list[_Box] = field(default_factory=list)
    row: int = 0
    x: float = 0.0

    @property
    def width(self) -> float:
        return max(map(len, self.text), default=0) * _LETTER + (20 if self.text else 0)

    @property
    def height(self) -> float:
        return len(self.text) * _LINE + (10 if self.text else 0)


def graph_svg(graph: Function | IRModule) -> str:
    """The picture of a function; of a module, that of its `main`, or of its first graph function.

    Raises `TypeMismatch` for a module without one.
    """
    if isinstance(graph, IRModule):
        functions = {var.name_hint: f for var, f in graph.functions.items() if isinstance(f, Function)}
        if not functions:
            raise TypeMismatch("expected a module with a graph function; it has none")
        graph = functions.get("main", next(iter(functions.values())))
    if not isinstance(graph, Function):
        raise TypeMismatch(f"expected a graph function or a module, found {type(graph).__name__}")
    return _drawn(_placed(_Reader().read(graph)))


@picture_of.provide
def _picture_of(node: object) -> str:
    """For notebooks: the picture of a graph of readable size, and nothing for anything else."""
    if isinstance(node, IRModule) and not any(isinstance(f, Function) for f in node.functions.values()):
        return ""
    if not isinstance(node, (Function, IRModule)):
        return ""
    picture = graph_svg(node)
    return picture if picture.count("<rect") <= MAX_BOXES else ""


class _Reader:
    """The boxes of a function, each after those that it takes values of."""

    def __init__(self) -> None:
        self.boxes: list[_Box] = []
        self.known: dict[Expr, list[_Box]] = {}

    def read(self, function: Function) -> list[_Box]:
        for param in function.params:
            self._add(param, (param.name_hint, *_described(param.struct_info_)), "value", ())
        results = self._body(function.body)
        self._add(function, ("result", *_described(function.ret_struct_info)), "value", results)
        return self.boxes

    def _add(self, value: Expr, text: Sequence[str], kind: str, above: Sequence[_Box]) -> None:
        box = _Box(tuple(text), kind, list(dict.fromkeys(above)))
        self.boxes.append(box)
        self.known[value] = [box]

    def _body(self, body: SeqExpr) -> list[_Box]:
        for block in body.blocks:
            for binding in block.bindings:
                self._bound(binding.var, binding.value)
        return self._sources(body.body)

    def _bound(self, var: Var, value: Expr) -> None:
        if isinstance(value, Call):
            name, kind = _called(value)
            arguments = [box for arg in value.args for box in self._sources(arg)]
            if isinstance(value.op, Var):
                arguments += self.known.get(value.op, [])
            self._add(var, (name, *_described(var.struct_info_)), kind, arguments)
        elif isinstance(value, If):
            branches = [*self._body(value.true_branch), *self._body(value.false_branch)]
            self._add(var, ("if", *_described(var.struct_info_)), "call", [*self._sources(value.cond), *branches])
        else:
            self.known[var] = self._sources(value)

    def _sources(self, value: Expr) -> list[_Box]:
        """The boxes that an argument comes from; none of a constant."""
        match value:
            case Tuple():
                return [box for item in value.fields for box in self._sources(item)]
            case TupleGetItem():
                return self._sources(value.tuple_value)
            case Call():
                return [box for arg in value.args for box in self._sources(arg)]
        return self.known.get(value, [])


def _called(call: Call) -> tuple[str, str]:
    """What a call's box says, and its kind."""
    if isinstance(call.op, Op):
        if call.op.name in _OF_OPERATORS:
            return _name(call.args[0]), "kernel"
        return call.op.name.removeprefix("relax."), "call"
    return _name(call.op), "kernel"


def _name(function: Expr) -> str:
    match function:
        case GlobalVar() | Var():
            return function.name_hint
        case ExternFunc():
            return function.global_symbol
        case StringImm():
            return function.value
    return type(function).__name__


def _described(info: StructInfo | None) -> Iterator[str]:
    """A line that says shape and dtype, where there are some."""
    match info:
        case TensorStructInfo():
            shape = info.shape.values if isinstance(info.shape, ShapeExpr) else None
            values = () if shape is None else (e.value if isinstance(e, IntImm) else e for e in shape)
            extents = "…" if shape is None else " × ".join(map(str, values))
            yield f"{info.dtype} {extents}".rstrip()
        case ShapeStructInfo():
            yield "shape"
        case TupleStructInfo():
            yield f"{len(info.fields)} values"


def _placed(boxes: list[_Box]) -> list[list[_Box]]:
    """The rows of the picture, with bends where a line passes a row, and the place of each box in its row."""
    for box in boxes:
        box.row = max((other.row + 1 for other in box.above), default=0)
    below: dict[_Box, list[_Box]] = {box: [] for box in boxes}
    for box in boxes:
        for other in box.above:
            below[other].append(box)
    for box in boxes:
        if not box.above and below[box]:  # a parameter stands right above its first use
            box.row = min(user.row for user in below[box]) - 1
    rows: list[list[_Box]] = [[] for _ in range(max(box.row for box in boxes) + 1)]
    for box in boxes:
        rows[box.row].append(box)
        for i, start in enumerate(box.above):
            upper = start
            for row in range(start.row + 1, box.row):
                upper = _Box(above=[upper], row=row)
                rows[row].append(upper)
            box.above[i] = upper
    for row in rows:
        _set_out(row)
    left = min(box.x - box.width / 2 for row in rows for box in row)
    for row in rows:
        for box in row:
            box.x -= left
    return rows


def _set_out(row: list[_Box]) -> None:
    """Gives each box of a row its place: below what leads to it, as far as its neighbours leave room."""
    # What comes from afar, by a line with bends, pulls no box out of the column of its neighbours.
    near = {box: [other.x for other in box.above if other.text] or [other.x for other in box.above] for box in row}
    wanted = {box: sum(xs) / len(xs) if xs else 0.0 for box, xs in near.items()}
    row.sort(key=lambda box: wanted[box])
    end = float("-inf")
    for box in row:
        box.x = max(wanted[box], end + box.width / 2)
        end = box.x + box.width / 2 + _GAP
    moved = [wanted[box] - box.x for box in row if box.text] or [wanted[box] - box.x for box in row]
    shift = sum(moved) / len(moved)
    for box in row:
        box.x += shift


def _drawn(rows: list[list[_Box]]) -> str:
    tops, y = [], 2.0
    for row in rows:
        tops.append(y)
        y += max(box.height for box in row) + _ROW
    width, height = max(box.x + box.width / 2 for row in rows for box in row) + 4, y - _ROW + 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" style="max-width: 100%; height: auto" font-family="monospace" font-size="12" '
        'fill="none" stroke="currentColor" role="img" aria-label="a graph: what is computed from what">'
    ]
    tall = [max(box.height for box in row) for row in rows]
    for level, row in enumerate(rows):
        for box in row:
            for other in box.above:
                parts.append(_line(other, box, tops, tall))
            if not box.text and box.kind == "bend":
                parts.append(
                    f'<path opacity="0.6" d="M{box.x:.0f} {tops[level]:.0f}V{tops[level] + tall[level]:.0f}"/>'
                )
    for level, row in enumerate(rows):
        for box in row:
            if box.text:
                parts.append(_box(box, tops[level]))
    return "".join([*parts, "</svg>"])


def _line(upper: _Box, lower: _Box, tops: list[float], tall: list[float]) -> str:
    start = tops[upper.row] + (upper.height if upper.text else tall[upper.row])
    end = tops[lower.row]
    bend = (end - start) / 2
    curve = f"M{upper.x:.0f} {start:.0f}C{upper.x:.0f} {start + bend:.0f} {lower.x:.0f} {end - bend:.0f} "
    return f'<path opacity="0.6" d="{curve}{lower.x:.0f} {end:.0f}"/>'


def _box(box: _Box, top: float) -> str:
    left, border = box.x - box.width / 2, {"kernel": 2, "call": 1, "value": 0}[box.kind]
    parts = [
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="5" '
        f'stroke-width="{border}" fill="currentColor" fill-opacity="{0.04 if border else 0.1}"/>'
    ]
    for i, line in enumerate(box.text):
        weight = ' font-weight="bold"' if i == 0 else ' opacity="0.75"'
        parts.append(
            f'<text x="{box.x:.0f}" y="{top + 17 + i * _LINE:.0f}" text-anchor="middle" stroke="none" '
            f'fill="currentColor"{weight}>{html.escape(line)}</text>'
        )
    return "".join(parts)
