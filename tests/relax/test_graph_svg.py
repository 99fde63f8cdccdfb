"""A graph as a picture: its boxes, its lines from what is computed earlier to what is computed later, and its limits."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from oneir import relax, te
from oneir.relax import graph_svg
from oneir.relax.graph_svg import MAX_BOXES
from oneir.runtime.error import TypeMismatch
from oneir.script import from_source

RESIDUAL: Any = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            parts = R.split(a, 2, axis=1)
            b = R.nn.relu(parts[0])
            both = R.concat((b, parts[1]), axis=1)
            out = R.add(both, x)
            R.output(out)
        return out
""")


def boxes(picture: str) -> dict[str, tuple[float, float]]:
    """Where the box of each name stands: the middle and the top. Two of a name would be one."""
    svg, found = "{http://www.w3.org/2000/svg}", {}
    items = list(ET.fromstring(picture))
    for rect, text in itertools.pairwise(items):
        if rect.tag == f"{svg}rect" and text.tag == f"{svg}text":
            found[text.text or ""] = float(text.attrib["x"]), float(rect.attrib["y"])
    return found


def ends(picture: str) -> list[tuple[float, float, float, float]]:
    """Where lines that are no bends begin and end."""
    curves = re.findall(r'd="M(\S+) (\S+)C\S+ \S+ \S+ \S+ (\S+) (\S+)"', picture)
    return [(float(a), float(b), float(c), float(d)) for a, b, c, d in curves]


def test_every_call_and_parameter_has_a_box_below_what_it_reads():
    picture = graph_svg(RESIDUAL)
    found = boxes(picture)
    assert set(found) == {"x", "w", "matmul", "split", "nn.relu", "concat", "add", "result"}
    tops = {name: top for name, (_, top) in found.items()}
    assert tops["x"] == tops["w"] < tops["matmul"] < tops["split"] < tops["nn.relu"] < tops["concat"] < tops["add"]
    assert "float32 n × 8" in picture and "2 values" in picture and "T.int64" not in picture


def test_tuples_are_seen_through_and_every_line_leads_down_to_a_box():
    picture = graph_svg(RESIDUAL)
    found = boxes(picture)
    reached = [(x, y) for _, _, x, y in ends(picture)]
    assert all(top < bottom for _, top, _, bottom in ends(picture))
    into = {name: reached.count(place) for name, place in found.items()}
    # `concat` reads the relu, and the split itself through the tuple.
    assert into == {"x": 0, "w": 0, "matmul": 2, "split": 1, "nn.relu": 1, "concat": 2, "add": 2, "result": 1}


def test_boxes_of_a_row_do_not_overlap():
    picture = graph_svg(RESIDUAL)
    rows: dict[str, list[tuple[float, float]]] = {}
    for rect in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}rect"):
        left = float(rect.attrib["x"])
        rows.setdefault(rect.attrib["y"], []).append((left, left + float(rect.attrib["width"])))
    for row in rows.values():
        assert all(end < begin for (_, end), (begin, _) in zip(sorted(row), sorted(row)[1:], strict=False))


def test_kernels_have_their_names_and_a_thick_border():
    lowered = relax.transform.LegalizeOps()(RESIDUAL)
    picture = graph_svg(lowered)
    assert "matmul" in boxes(picture) and picture.count('stroke-width="2"') == 5 and "call_tir" not in picture


def test_branches_and_functions():
    module: Any = from_source("""
@I.ir_module
class Module:
    @R.function
    def twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.add(x, x)

    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        cls = Module
        if c:
            y = cls.twice(x)
        else:
            y = R.exp(x)
        return y
""")
    assert set(boxes(graph_svg(module))) == {"x", "c", "twice", "exp", "if", "result"}
    assert set(boxes(graph_svg(module["twice"]))) == {"x", "add", "result"}


def test_notebooks_show_the_picture_of_a_graph_and_only_of_one():
    assert RESIDUAL._repr_html_().count("<svg") == RESIDUAL["main"]._repr_html_().count("<svg") == 1
    x = te.placeholder((4,), name="x")
    assert "<svg" not in te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0)])._repr_html_()
    builder = relax.BlockBuilder()
    value: Any = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    with builder.function("main", [value]):
        for _ in range(MAX_BOXES):
            value = builder.emit(relax.op.exp(value))
        builder.emit_func_output(value)
    assert "<svg" not in builder.get()._repr_html_() and graph_svg(builder.get()).count("<rect") > MAX_BOXES


def test_what_is_no_graph_is_refused():
    x = te.placeholder((4,), name="x")
    kernel: Any = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0)])
    with pytest.raises(TypeMismatch, match="expected a graph function or a module, found PrimFunc"):
        graph_svg(kernel)
    with pytest.raises(TypeMismatch, match="expected a module with a graph function"):
        graph_svg(relax.transform.LegalizeOps()(from_source("@I.ir_module\nclass M:\n    pass")))
