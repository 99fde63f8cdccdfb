"""What a node class gets from its declaration: constructor, copies, visiting, mapping; trees of any depth."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from oneir.ir.container import EMPTY, Array
from oneir.ir.expr import Add, IntImm, Select, Var
from oneir.ir.node import Node, as_array, attr, binder, child, derived, meta, node_classes
from oneir.ir.structural import structural_equal
from oneir.ir.visitor import Mapper, Visitor, post_order_visit, pre_order_visit


class Hue(Enum):
    RED = 1
    BLUE = 2


class Leaf(Node):
    value: int


class Tree(Node):
    left: Node
    right: Node | None = None
    color: Hue = attr(default=Hue.RED, converter=Hue)
    more: Array[Node] = child(default=(), converter=as_array)
    named: Mapping[str, Node] = child(default=EMPTY)
    size: int = derived()
    note: str = meta(default="")

    def _derive(self) -> None:
        self.size = 2 + len(self.more)


class Painted(Tree):
    paint: str = attr(default="dull")


class Binding(Node):
    var: Var = binder()
    body: Node


class Shared(Node, shared=True):
    value: Node


class Custom(Node):
    pair: Node
    other: Node

    def __init__(self, both: Any = None, *, pair: Any = None, other: Any = None):
        self.pair = both if pair is None else pair
        self.other = both if other is None else other


class Further(Custom, init=False):
    more: Array[Node] = derived()


def test_a_constructor_takes_the_fields_in_order_with_meta_fields_last():
    tree = Tree(Leaf(1), Leaf(2), 2, [Leaf(3)], {"a": Leaf(4)}, "a note")
    assert tree.left.value == 1 and tree.right.value == 2 and tree.color is Hue.BLUE and tree.note == "a note"
    assert type(tree.more) is Array and tree.more[0].value == 3 and tree.named["a"].value == 4
    assert tree.size == 3


def test_defaults_and_lone_nodes_in_arrays():
    tree = Tree(Leaf(1))
    assert (tree.right, tree.color, tree.more, tree.named, tree.note) == (None, Hue.RED, (), {}, "")
    leaf = Leaf(2)
    assert Tree(Leaf(1), more=leaf).more[0] is leaf


def test_a_subclass_adds_fields_after_those_of_its_base():
    painted = Painted(Leaf(1), paint="bright", note="n")
    assert painted.paint == "bright" and painted.size == 2 and painted.note == "n"
    assert [f.name for f in Painted.node_fields] == ["left", "right", "color", "more", "named", "size", "paint", "note"]
    assert not hasattr(painted, "__dict__")


def test_match_patterns_follow_the_fields():
    match Tree(Leaf(1), Leaf(2)):
        case Tree(Leaf(a), Leaf(b)):
            assert (a, b) == (1, 2)
        case _:
            pytest.fail("the pattern did not match")
    assert Tree.__match_args__ == ("left", "right", "color", "more", "named")


def test_wrong_arguments_are_pythons_own_errors():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'left'"):
        Tree()
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        Tree(Leaf(1), size=3)
    with pytest.raises(ValueError, match="7 is not a valid Hue"):
        Tree(Leaf(1), color=7)


def test_nodes_compare_by_identity_and_are_known_by_type_key():
    assert Leaf(1) != Leaf(1) and Leaf(1).same_as(Leaf(1)) is False
    assert node_classes[Tree.type_key] is Tree and Tree.type_key.endswith(".Tree")
    assert node_classes[Add.type_key] is Add


def test_a_node_without_a_printer_shows_its_fields():
    assert str(Leaf(3)) == "Leaf(value=3)" and repr(Leaf(3)) == "Leaf(value=3)"


def test_replace_copies_changes_and_keeps():
    tree = Tree(Leaf(1), Leaf(2), note="kept")
    new = tree.replace(left=Leaf(9))
    assert new.left.value == 9 and new.right is tree.right and new.note == "kept" and tree.left.value == 1
    assert tree.replace(left=tree.left) is tree and tree.replace() is tree
    assert tree.replace(more=[Leaf(1)]).size == 3


def test_replace_refuses_what_is_no_field():
    with pytest.raises(TypeError, match=r"Tree has no field rihgt; it has left, right, color, more, named, note"):
        Tree(Leaf(1)).replace(rihgt=Leaf(2))


def leaves(node: Node) -> list[int]:
    found = []
    post_order_visit(node, lambda n: found.append(n.value) if isinstance(n, Leaf) else None)
    return found


def test_visiting_goes_through_all_kinds_of_children_in_order():
    tree = Tree(Leaf(1), None, more=[Leaf(2), Leaf(3)], named={"a": Leaf(4), "b": Tree(Leaf(5), Leaf(6))})
    assert leaves(tree) == [1, 2, 3, 4, 5, 6]


def test_pre_order_stops_where_told():
    seen = []

    def f(node: Node) -> bool:
        seen.append(type(node).__name__)
        return not (isinstance(node, Tree) and node.note == "closed")

    pre_order_visit(Tree(Tree(Leaf(1), note="closed"), Leaf(2)), f)
    assert seen == ["Tree", "Tree", "Leaf"]


def test_a_method_for_a_base_class_handles_its_subclasses():
    class Names(Visitor):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def visit_Tree(self, node: Tree) -> None:
            self.names.append(f"tree {node.note}")
            self.generic_visit(node)

        def visit_Node(self, node: Node) -> None:
            self.names.append(type(node).__name__)

    class More(Names):
        def visit_Painted(self, node: Painted) -> None:
            self.names.append(f"painted {node.paint}")

    tree = Tree(Painted(Leaf(1), note="p"), Leaf(2), note="t")
    names, more = Names(), More()
    names(tree)
    more(tree)
    assert names.names == ["tree t", "tree p", "Leaf", "Leaf"]
    assert more.names == ["tree t", "painted dull", "Leaf"]


class Increment(Mapper):
    def visit_Leaf(self, leaf: Leaf) -> Leaf:
        return leaf if leaf.value < 0 else Leaf(leaf.value + 1)


def test_mapping_rebuilds_only_the_way_to_what_changed():
    still = Tree(Leaf(-1), more=[Leaf(-2)], named={"a": Leaf(-3)})
    tree = Tree(still, Leaf(1), color=2, note="kept")
    new = Increment()(tree)
    assert new is not tree and new.left is still and new.right.value == 2
    assert new.color is Hue.BLUE and new.note == "kept"
    assert Increment()(still) is still
    array, mapping = (
        Increment()(Tree(Leaf(-1), more=[Leaf(-2), Leaf(3)])),
        Increment()(Tree(still, named={"a": Leaf(3)})),
    )
    assert [n.value for n in array.more] == [-2, 4] and mapping.named["a"].value == 4 and mapping.left is still


def test_an_empty_result_of_a_mapper_counts():
    class Drop(Mapper):
        def visit_IntImm(self, imm: IntImm) -> IntImm:
            return IntImm("int32", 0)

    assert Drop()(Add(Var("x", "int32"), IntImm("int32", 5))).b.value == 0


def test_nodes_without_children_come_to_a_generic_visit_of_ones_own():
    class Kinds(Visitor):
        def __init__(self) -> None:
            super().__init__()
            self.kinds: list[str] = []

        def generic_visit(self, node: Node) -> None:
            self.kinds.append(type(node).__name__)
            super().generic_visit(node)

    class Wrapped(Mapper):
        def generic_visit(self, node: Node) -> Node:
            return Tree(node) if isinstance(node, Leaf) else super().generic_visit(node)

    tree, kinds = Tree(Leaf(1), Shared(Leaf(2))), Kinds()
    kinds(tree)
    assert kinds.kinds == ["Tree", "Leaf", "Leaf"]
    assert isinstance(Wrapped()(tree).left, Tree)
    assert Mapper()(tree) is tree


def test_a_visit_of_ones_own_is_called_for_every_child_and_may_go_on():
    seen: list[str] = []

    class Show(Visitor):
        def visit(self, node: Node) -> None:
            seen.append(type(node).__name__)
            super().visit(node)

    class Grow(Mapper):
        def visit(self, node: Node) -> Node:
            new = super().visit(node)
            return Leaf(new.value + 1) if isinstance(new, Leaf) else new

    tree = Tree(Leaf(1), Shared(Leaf(2)), more=[Leaf(3)], named={"a": Leaf(4)})
    Show()(tree)
    assert seen == ["Tree", "Leaf", "Shared", "Leaf", "Leaf", "Leaf"]
    new = Grow()(tree)
    assert (new.left.value, new.right.value.value, new.more[0].value, new.named["a"].value) == (2, 3, 4, 5)


def test_what_is_no_node_is_left_alone_in_a_field_for_nodes():
    class Fail(Mapper):
        def visit_Leaf(self, leaf: Leaf) -> Node:
            raise AssertionError

    class Loose(Node):
        value: Any = child()
        var: Any = binder()

    loose = Loose("text", 3)
    assert Fail()(loose) is loose
    Visitor()(loose)


def test_shared_nodes_are_visited_once_and_mapped_to_one():
    shared = Shared(Leaf(1))
    tree = Tree(shared, shared, more=[shared])
    visits = []

    class Count(Visitor):
        def visit_Leaf(self, leaf: Leaf) -> None:
            visits.append(leaf)

    Count()(tree)
    assert len(visits) == 1
    new = Increment()(tree)
    assert new.left is new.right is new.more[0] is not shared and new.left.value.value == 2


def test_definitions_of_variables_are_neither_visited_nor_mapped():
    x = Var("x", "int32")
    seen = []

    class Uses(Mapper):
        def visit_Var(self, var: Var) -> Var:
            seen.append(var)
            return Var("y", "int32")

    new = Uses()(Binding(x, x + 1))
    assert seen == [x] and new.var is x and new.body.a.name == "y"


def test_a_class_with_its_own_constructor_is_rebuilt_by_keywords():
    custom = Custom(Leaf(1))
    assert custom.pair is custom.other
    new = Increment()(custom)
    assert (new.pair.value, new.other.value) == (2, 2)
    assert custom.replace(other=Leaf(5)).other.value == 5 and custom.replace(other=Leaf(5)).pair is custom.pair


def test_trees_far_deeper_than_the_recursion_limit():
    depth = 50_000
    x = Var("x", "int32")

    def deep() -> Any:
        expr: Any = x
        for i in range(depth):
            expr = Add(expr, IntImm("int32", i % 7)) if i % 2 else Select(IntImm("bool", 1), expr, x)
        return expr

    limit = sys.getrecursionlimit()
    tree = deep()
    counted = []
    post_order_visit(tree, counted.append)
    assert len(counted) > 2 * depth

    class ToY(Mapper):
        def visit_Var(self, var: Var) -> Var:
            return y

    y = Var("y", "int32")
    assert structural_equal(tree, deep()) and not structural_equal(tree, ToY()(tree))
    assert ToY()(ToY()(tree)) is not tree and sys.getrecursionlimit() == limit


def test_the_recursion_limit_is_restored_after_an_error():
    class Fails(Visitor):
        def visit_Leaf(self, leaf: Leaf) -> None:
            raise ValueError("here")

    limit = sys.getrecursionlimit()
    with pytest.raises(ValueError, match="here"):
        Fails()(Tree(Leaf(1)))
    assert sys.getrecursionlimit() == limit


def test_a_class_may_keep_the_constructor_that_its_base_wrote_by_hand():
    leaf = Leaf(1)
    twice = Further(leaf)
    assert twice.pair is leaf and twice.other is leaf
    with pytest.raises(TypeError, match="more"):
        Further(leaf, more=())
