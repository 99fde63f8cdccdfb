"""Properties of ATen's operators: their names, whether they work in place or broadcast, how they are decomposed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def name_of(target: Any) -> tuple[str, str]:
    """The name of an operator and of its overload: ("add", "Tensor"); operators of libraries as "library::name"."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__name__", str(target)), ""
    namespace, _, name = schema.name.partition("::")
    return (name if namespace == "aten" else schema.name), schema.overload_name or "default"


def is_in_place(target: Any) -> bool:
    """Whether an operator writes its result into its first argument."""
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.arguments:
        return False
    first = schema.arguments[0].alias_info
    return first is not None and first.is_write


def is_getitem(node: Any) -> bool:
    """Whether a node takes one result of an operator that has several."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def broadcasts(target: Any) -> bool:
    """Whether all arguments of an operator that are tensors broadcast to the shape of its result."""
    if name_of(target)[0] in _BROADCAST:
        return True
    from torch import Tag

    return Tag.pointwise in getattr(target, "tags", ())


# Operators that broadcast their arguments, but have no such tag in PyTorch.
_BROADCAST = frozenset(
    {"__and__", "__or__", "__xor__", "copy_", "expand", "floor_divide", "masked_fill", "masked_fill_", "rsub", "where"}
)


def written_by(node: Any) -> Any:
    """The node that a chain of nodes that work in place writes into."""
    while is_in_place(node.target) and hasattr(node.args[0], "target"):
        node = node.args[0]
    return node


_DROPOUTS = frozenset({"dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"})


def _writes(node: Any) -> bool:
    """Whether a node changes its first argument: dropout in place does not, in inference."""
    if node.op != "call_function" or not is_in_place(node.target):
        return False
    return not (name_of(node.target)[0] in _DROPOUTS and len(node.args) > 2 and not node.args[2])


def is_view(node: Any) -> bool:
    """Whether the result of a node may share memory with an argument that is not written."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return node.op == "call_function"
    return any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def uses_vmap(graph: Any) -> bool:
    """Whether a graph has functions inside of `torch.vmap`, whose tensors are without the dimension that is mapped."""
    return any(getattr(node.target, "__module__", "") == "torch._functorch.predispatch" for node in graph.nodes)


def mutates_through_views(graph: Any) -> bool:
    """Whether a write in place is visible through a view.

    Where nothing is, a write only gives a new value to the node that it writes to.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if not _writes(node) or not hasattr(node.args[0], "users"):
            continue
        written = written_by(node)
        if is_view(written) and written.op == "call_function":
            return True
        if any(
            is_view(user) and not is_in_place(user.target) and position[user] < position[node] for user in written.users
        ):
            return True
    return False


def decompositions(targets: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of operators, of those that have one."""
    from torch._decomp import decomposition_table
    from torch.export import default_decompositions

    exported = default_decompositions()
    tables = (exported, decomposition_table)
    return {target: table[target] for target in targets for table in reversed(tables) if target in table}


_BRANCHES = frozenset({"cond", "while_loop", "scan", "map_impl"})


def has_branches(graph: Any) -> bool:
    """Whether parts of a graph may run under a condition."""
    return any(node.op == "call_function" and name_of(node.target)[0] in _BRANCHES for node in graph.nodes)


def integers_of(node: Any) -> list[Any]:
    """The arguments of a node that are nodes and stand where its operator asks for integers, such as `index` of select.

    Parts of programs are asked for no numbers; they ask for their own.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    asked = [arg for arg, declared in zip(node.args, schema.arguments, strict=False) if "int" in str(declared.type)]
    flat = [part for arg in asked for part in (arg if isinstance(arg, (list, tuple)) else [arg])]
    return [part for part in flat if hasattr(part, "meta")]


def draws_by_itself(target: Any) -> bool:
    """Whether an operator draws random numbers itself, rather than by the operators that it is made of."""
    from torch import Tag

    schema = getattr(target, "_schema", None)
    if schema is None or Tag.nondeterministic_seeded not in target.tags:
        return False
    return not any(argument.name in ("dropout", "dropout_p") for argument in schema.arguments)
