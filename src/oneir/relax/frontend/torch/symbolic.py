"""PyTorch's symbolic integers as expressions."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from typing import Any

from ....ir import operators
from ....ir.expr import PrimExpr, SizeVar
from ....ir.expr import Var as PrimVar
from ....runtime.error import UnsupportedError

_FOLDED = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Max": operators.maximum,
    "Min": operators.minimum,
}
_OF_TWO = {
    "FloorDiv": operators.floordiv,
    "CleanDiv": operators.floordiv,
    "CeilDiv": lambda a, b: operators.floordiv(a + b - 1, b),
    "Mod": operators.floormod,
    "PythonMod": operators.floormod,
}
_ROUNDED_DOWN = frozenset({"TruncToInt", "FloorToInt", "floor"})
# A larger denominator means a number such as 0.1, which no float is equal to.
_LARGEST_DENOMINATOR = 1 << 16


class Symbols:
    """The values of PyTorch's symbols: variables, or expressions of variables that are extents of inputs."""

    def __init__(self) -> None:
        self._values: dict[str, PrimExpr] = {}
        self._taken: set[str] = set()
        self._places: dict[str, str] = {}

    def name_by_place(self, extent: Any, place: str) -> None:
        """Names the symbol of an extent after a dimension of an input, for programs from files, which keep no names."""
        node = getattr(extent, "node", None)
        if node is not None and node.expr.is_Symbol:
            self._places.setdefault(str(node.expr), place)

    def expression(self, value: Any) -> Any:
        """An integer as it is; a `SymInt` as an expression."""
        node = getattr(value, "node", None)
        return int(value) if node is None else self._of(node.expr, node.shape_env)

    def fresh(self, name: str) -> PrimExpr:
        """A new variable."""
        return SizeVar(self._unused(name), "int64")

    def solve(self, value: Any, known: set[PrimVar]) -> tuple[PrimVar, PrimExpr] | None:
        """The extent of an input in which one symbol stands that no input has as an extent, such as `2 * n + 1`.

        The extent becomes a variable, and the symbol what follows from that. Returns the variable, and the extent as an
        expression of it, which is the variable only where the extent is one that the symbol allows. None if there is no
        such symbol in the extent, or if the extent does not tell its value.
        """
        node = value.node
        symbols = [s for s in node.expr.free_symbols if self._variable(s, node.shape_env) not in known]
        if len(symbols) != 1 or symbols[0] == node.expr:
            return None
        (symbol,) = symbols
        expr = node.expr.expand()
        factor, offset = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
        if not factor.is_Integer or int(factor) <= 0 or symbol in offset.free_symbols:
            return None
        if (expr - factor * symbol - offset).expand() != 0:
            return None
        name = self._variable(symbol, node.shape_env).name
        extent = SizeVar(self._unused(f"{name}_extent"), "int64")
        self._values[str(symbol)] = operators.floordiv(extent - self._of(offset, node.shape_env), int(factor))
        return extent, self._of(node.expr, node.shape_env)

    def _variable(self, symbol: Any, shape_env: Any) -> Any:
        name = str(symbol)
        if name not in self._values:
            given = _given_name(symbol, shape_env) or self._places.get(name, name)
            self._values[name] = SizeVar(self._unused(given), "int64")
        return self._values[name]

    def _unused(self, name: str) -> str:
        count, wanted = 0, name
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name

    def _of(self, expr: Any, shape_env: Any) -> Any:
        """A SymPy expression over integers."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._variable(expr, shape_env)
        kind = type(expr).__name__
        if kind in _ROUNDED_DOWN:
            above, below = self._fraction(expr.args[0], shape_env)
            return above if below == 1 else operators.floordiv(above, below)
        if kind == "CeilToInt":
            above, below = self._fraction(expr.args[0], shape_env)
            return above if below == 1 else operators.floordiv(above + (below - 1), below)
        args = [self._of(a, shape_env) for a in expr.args]
        if kind in _FOLDED:
            # SymPy has numbers first.
            return reduce(_FOLDED[kind], sorted(args, key=lambda a: isinstance(a, int)))
        if kind in _OF_TWO and len(args) == 2:
            return _OF_TWO[kind](*args)
        if kind == "Pow" and isinstance(args[1], int) and args[1] > 0:
            return reduce(_FOLDED["Mul"], [args[0]] * args[1])
        if kind == "ModularIndexing":
            return operators.floormod(operators.floordiv(args[0], args[1]), args[2])
        raise UnsupportedError(f"the symbolic extent {expr} cannot be imported; export with other dynamic_shapes")

    def _fraction(self, expr: Any, shape_env: Any) -> tuple[Any, int]:
        """A rational number as a numerator and a denominator."""
        kind = type(expr).__name__
        if expr.is_Float or expr.is_Rational:
            number = Fraction(float(expr)) if expr.is_Float else Fraction(int(expr.p), int(expr.q))
            if number.denominator > _LARGEST_DENOMINATOR:
                raise UnsupportedError(f"the factor {float(expr)} of a symbolic extent has no exact value; give sizes")
            return number.numerator, number.denominator
        if kind == "Mul":
            above: Any = 1
            below = 1
            for arg in expr.args:
                numerator, denominator = self._fraction(arg, shape_env)
                above, below = above * numerator, below * denominator
            return above, below
        if kind == "ToFloat":
            return self._of(expr.args[0], shape_env), 1
        if kind == "IntTrueDiv" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
            return self._of(expr.args[0], shape_env), int(expr.args[1])
        return self._of(expr, shape_env), 1


def _given_name(symbol: Any, shape_env: Any) -> str | None:
    """The name of the `torch.export.Dim` that a symbol stands for; None if there is none."""
    given = getattr(shape_env, "source_name_to_debug_name", {})
    for other, sources in getattr(shape_env, "var_to_sources", {}).items():
        if shape_env.replacements.get(other, other) != symbol:
            continue
        for source in sources:
            text = source.name if isinstance(source.name, str) else source.name()
            # A `Dim` that only stands in derived extents is the symbol's source itself.
            name = given.get(text, text)
            if name.isidentifier():
                return name
    return None
