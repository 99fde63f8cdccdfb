"""Graphs of which PyTorch runs some nodes: random numbers, library calls, and what cannot be imported.

The other nodes become as few programs as their dependencies allow. Each node gets a level: PyTorch runs the nodes of
even levels, one by one, and a program computes those of an odd level. Random numbers that depend on nothing that is
computed are thus drawn before the first program, in the order in which the graph draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import operators
from .aten import is_complex, is_example
from .random_numbers import faster
from .registry import find_converter

Part = Callable[..., Any]


def by_pytorch(graph: Any, training: bool) -> set[Any]:
    """The nodes of a graph that PyTorch runs by design: random numbers, passes of training that libraries have, and
    what raises errors together with what these are about.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    with_effects = {node for node in calls if operators.name_of(node.target)[0] == "with_effects"}
    checked = {source for node in with_effects for source in node.all_input_nodes if source.op != "placeholder"}
    return {node for node in calls if _is_pytorchs(node, training)} | with_effects | checked


# Forward passes of libraries that give their backward passes more than their results.
_FOR_TRAINING = frozenset({"_scaled_dot_product_flash_attention_for_cpu", "mkldnn_rnn_layer"})


def _is_pytorchs(node: Any, training: bool) -> bool:
    from torch import Tag

    name, overload = operators.name_of(node.target)
    if training and (name in _FOR_TRAINING or (name.endswith("_backward") and find_converter(name, overload) is None)):
        return True
    if Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    # Operators that may drop values are random if they do.
    rate = next((_argument(node, n) for n in ("dropout_p", "dropout") if _has_argument(node, n)), None)
    return rate is None or bool(rate)


def _has_argument(node: Any, name: str) -> bool:
    return any(a.name == name for a in node.target._schema.arguments)


def _argument(node: Any, name: str) -> Any:
    for i, declared in enumerate(node.target._schema.arguments):
        if declared.name == name:
            given = node.args[i] if i < len(node.args) else node.kwargs.get(name, declared.default_value)
            return given
    return None


_VIEWS = frozenset({"alias", "detach", "permute", "squeeze", "t", "transpose", "unsqueeze", "view"})


def views_of_inputs(graph: Any) -> set[Any]:
    """The nodes on the way from placeholders to results that only look at the memory of these in another shape."""
    views: set[Any] = set()
    output = next(node for node in graph.nodes if node.op == "output")
    for result in output.all_input_nodes:
        chain = []
        while result.op == "call_function" and operators.name_of(result.target)[0] in _VIEWS:
            chain.append(result)
            result = result.args[0]
        if result.op == "placeholder":
            views.update(chain)
    return views


def with_companions(graph: Any, chosen: Iterable[Any]) -> set[Any]:
    """The chosen nodes, and those that PyTorch must then run too: what takes chosen placeholders, the results of
    operators with several, what takes or gives complex numbers, which programs do not, and the sizes and new tensors
    that chosen nodes take.
    """
    eager = set(chosen)
    before = -1
    while len(eager) > before:
        before = len(eager)
        for node in graph.nodes:
            for source in node.all_input_nodes:
                together = operators.is_getitem(node) or is_complex(source)
                if source in eager and node.op != "output" and (together or source.op == "placeholder"):
                    eager.add(node)
                elif node in eager and together and source.op != "placeholder":
                    eager.add(source)
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not eager.isdisjoint(node.users) and _needs_no_tensor(node):
            eager.add(node)
    return eager


def _needs_no_tensor(node: Any) -> bool:
    """Whether a node computes a number, or makes a tensor of numbers alone."""
    return _is_number(node) or (
        is_example(node.meta.get("val"))
        and not any(is_example(source.meta.get("val")) for source in node.all_input_nodes)
    )


def _is_number(node: Any) -> bool:
    """Whether a node computes an integer or a float of sizes."""
    return node.op == "call_function" and type(node.meta.get("val")).__name__ in ("SymInt", "SymFloat", "int", "float")


def levels(graph: Any, eager: set[Any]) -> dict[Any, int]:
    """The level of each operator: even where PyTorch runs it, odd where a program does."""
    from torch import Tag

    found: dict[Any, int] = {}
    drawn = 0
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        after = max((found.get(source, 0) for source in node.all_input_nodes), default=0)
        if node not in eager:
            found[node] = after + (after % 2 == 0)
            continue
        # Random numbers are drawn in order, and what is written is written in order.
        ordered = Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or operators.is_in_place(node.target)
        found[node] = max(after + after % 2, drawn if ordered else 0)
        drawn = found[node] if ordered else drawn
    return found


def in_parts(graph_module: Any, eager: set[Any], compile_part: Callable[[Any], Part]) -> Part:
    """The function of a graph whose nodes in `eager` PyTorch runs, and `compile_part` makes programs of the others.

    A part takes a list of its arguments and returns a tuple. Raises what `compile_part` raises.
    """
    import operator

    from torch.fx import Graph, GraphModule

    graph = graph_module.graph
    level = levels(graph, eager)
    outer, values = Graph(), {}
    for node in graph.nodes:
        if node.op == "placeholder" or (node.op == "get_attr" and not eager.isdisjoint(node.users)):
            values[node] = outer.node_copy(node, values.__getitem__)
    for number in range(max(level.values(), default=0) + 1):
        nodes = [node for node in graph.nodes if level.get(node) == number]
        if number % 2 == 0:
            for node in nodes:
                values[node] = outer.node_copy(node, values.__getitem__)
                values[node].target = faster(node.target)
            continue
        results = [n for n in nodes if any(level.get(user) != number for user in n.users)]
        if not results:
            continue
        nodes, inputs = _closed(graph, nodes)
        part = _unpacked(compile_part(_part(graph_module, nodes, inputs, results)), number)
        made = outer.call_function(part, tuple(values[i] for i in inputs))
        values.update((n, outer.call_function(operator.getitem, (made, i))) for i, n in enumerate(results))
    output = next(node for node in graph.nodes if node.op == "output")
    for node in output.all_input_nodes:
        if node not in values:
            values[node] = outer.node_copy(node, values.__getitem__)
    outer.node_copy(output, values.__getitem__)
    run = GraphModule(graph_module, outer).forward

    def call(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return run(*given)

    return call


def _closed(graph: Any, nodes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Nodes and the numbers that they take, which are computed again, in order; and what these nodes take."""
    inside = set(nodes)
    rest = list(nodes)
    while rest:
        numbers = {s for s in rest.pop().all_input_nodes if s not in inside and _is_number(s)}
        inside |= numbers
        rest += numbers
    ordered = [node for node in graph.nodes if node in inside]
    sources = dict.fromkeys(s for n in ordered for s in n.all_input_nodes if s not in inside and s.op != "get_attr")
    return ordered, list(sources)


def _part(graph_module: Any, nodes: Sequence[Any], inputs: Sequence[Any], results: Sequence[Any]) -> Any:
    """The graph module of some nodes."""
    from torch.fx import Graph, GraphModule

    graph, values = Graph(), {}
    for node in inputs:
        values[node] = graph.placeholder(node.name)
        values[node].meta = dict(node.meta)
    for node in nodes:
        for source in node.all_input_nodes:
            if source.op == "get_attr" and source not in values:
                values[source] = graph.node_copy(source)
        values[node] = graph.node_copy(node, values.__getitem__)
    graph.output(tuple(values[node] for node in results))
    return GraphModule(graph_module, graph)


def _unpacked(part: Part, number: int) -> Part:
    """A part as a function of its arguments, with a name of its own, under which generated code calls it."""

    def call(*args: Any) -> Any:
        return part(list(args))

    call.__name__ = call.__qualname__ = f"part_{number}"
    return call
