"""Modules, metadata, underlining and the other options of the printer."""

from __future__ import annotations

import io
from textwrap import dedent

import pytest

import oneir.script.printer as printer
from oneir.ir import IRModule, load_json, structural_equal
from oneir.ir import expr as e
from oneir.ir.global_info import DummyGlobalInfo, VDevice
from oneir.runtime import Scriptable
from oneir.script.printer import Printer, PrinterConfig, prints, script
from oneir.tir import stmt as s
from oneir.tir.buffer import decl_buffer
from oneir.tir.function import PrimFunc

i, j = e.Var("i", "int32"), e.Var("j", "int32")
A = decl_buffer((8, 8), "float32", "A")
VALUE = A[i, j] + 1.0
STORE = s.BufferStore(A, VALUE, [i, j])
INNER = s.For(j, 0, 8, s.ForKind.PARALLEL, STORE)
OUTER = s.For(i, 0, 8, s.ForKind.SERIAL, INNER)
MAIN = PrimFunc([A], OUTER, attrs={"global_symbol": "main"})
LINES = [
    "# from tvm.script import tir as T",
    "",
    "@T.prim_func",
    'def main(A: T.Buffer((8, 8), "float32")):',
    "    for i in range(8):",
    "        for j in T.parallel(8):",
    "            A[i, j] = A[i, j] + T.float32(1.0)",
]


def test_the_whole_text():
    assert MAIN.script() == "\n".join(LINES)


def underlined(node):
    text = MAIN.script(obj_to_underline=[node]).splitlines()
    carets = next(n for n, line in enumerate(text) if "^" in line)
    assert text[:carets] + text[carets + 1 :] == LINES
    above, below = text[carets - 1], text[carets]
    return above[below.index("^") : len(below)]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (OUTER, "for i in range(8):"),
        (INNER, "for j in T.parallel(8):"),
        (STORE, "A[i, j] = A[i, j] + T.float32(1.0)"),
        (VALUE, "A[i, j] + T.float32(1.0)"),
        (VALUE.b, "T.float32(1.0)"),
        (MAIN, LINES[3]),
    ],
)
def test_carets_stand_under_the_text_of_a_node(node, text):
    assert underlined(node) == text


def test_parentheses_are_no_part_of_what_is_underlined():
    total = i + j
    assert script(total * 2, obj_to_underline=[total]) == "(i + j) * 2\n ^^^^^"


def test_every_place_of_a_node_is_underlined():
    text = script(i + j + i, obj_to_underline=[i])
    assert text == "i + j + i\n^       ^"


def test_a_node_that_is_not_there_underlines_nothing():
    assert MAIN.script(obj_to_underline=[s.Evaluate(0)]) == "\n".join(LINES)


def test_lines_far_from_what_is_underlined_are_skipped():
    text = MAIN.script(obj_to_underline=[OUTER], num_context_lines=0)
    assert text == dedent(
        """\
        (... 4 lines skipped ...)
            for i in range(8):
            ^^^^^^^^^^^^^^^^^^
        (... 2 lines skipped ...)"""
    )
    # One line is not worth a cut.
    assert MAIN.script(obj_to_underline=[INNER], num_context_lines=0).splitlines()[-1] == LINES[-1]
    assert MAIN.script(num_context_lines=0) == "\n".join(LINES)


def test_lines_are_numbered():
    text = MAIN.script(print_line_numbers=True, obj_to_underline=[STORE]).splitlines()
    assert text[0] == "1 # from tvm.script import tir as T"
    assert text[6] == "7             A[i, j] = A[i, j] + T.float32(1.0)"
    assert text[7] == "              " + "^" * 34


def test_comments_are_written_at_nodes():
    text = MAIN.script(obj_to_annotate={INNER: "not bound", STORE: "here"}).splitlines()
    assert text[5:] == [
        "        # not bound",
        "        for j in T.parallel(8):",
        "            A[i, j] = A[i, j] + T.float32(1.0)  # here",
    ]


def test_prefixes_and_indentation():
    text = IRModule({"main": MAIN}).script(ir_prefix="IR", tir_prefix="tir", indent_spaces=2)
    assert text.splitlines()[:6] == [
        "# from tvm.script import ir as IR",
        "# from tvm.script import tir as tir",
        "",
        "@IR.ir_module",
        "class Module:",
        "  @tir.prim_func",
    ]
    assert text.splitlines()[7] == "    for i in range(8):"


def test_buffers_of_the_usual_dtype_do_not_name_it():
    local = decl_buffer((4,), "int8", "L")
    root = s.BlockRealize([], True, s.Block([], [], [], "root", s.Evaluate(0), alloc_buffers=[local]))
    func = PrimFunc([], root)
    assert 'L = T.alloc_buffer((4,), "int8")' in func.script()
    assert "L = T.alloc_buffer((4,))" in func.script(buffer_dtype="int8")


def test_names_with_addresses_are_told_apart():
    assert script(i, show_object_address=True).startswith("i_0x")


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="no_such_option"):
        MAIN.script(no_such_option=1)


# -- modules --


def test_functions_of_a_module_are_sorted_and_main_is_last():
    mod = IRModule({name: MAIN.without_attr("global_symbol") for name in ("zebra", "main", "ape")})
    names = [line.strip() for line in mod.script().splitlines() if "def " in line]
    assert [name.split("(")[0] for name in names] == ["def ape", "def zebra", "def main"]


def test_a_module_says_what_it_knows_beside_its_functions():
    mod = IRModule(
        {}, attrs={"b": 1, "a": "x"}, global_infos={"vdevice": [VDevice(None, 1, "global"), DummyGlobalInfo()]}
    )
    assert mod.script() == dedent(
        """\
        # from tvm.script import ir as I

        @I.ir_module
        class Module:
            I.module_attrs({"a": "x", "b": 1})
            I.module_global_infos({"vdevice": [I.vdevice(None, 1, "global"), I.dummy_global_info()]})"""
    )
    assert IRModule({}).script(name="Empty").splitlines()[-2:] == ["class Empty:", "    pass"]


def test_calls_within_a_module_go_through_the_module():
    helper = e.GlobalVar("helper")
    caller = PrimFunc([], s.Evaluate(e.Call("void", helper, [1])))
    text = IRModule({helper: PrimFunc([i], s.Evaluate(0)), "main": caller}).script()
    assert text.splitlines()[-1] == "        Module.helper(1)"


def test_a_name_of_the_module_is_not_taken_for_a_variable():
    loop = s.For(e.Var("Module", "int32"), 0, 4, s.ForKind.SERIAL, s.Evaluate(0))
    text = IRModule({"main": PrimFunc([], loop)}).script()
    assert "for Module_1 in range(4):" in text


# -- metadata --


class Opaque(s.Stmt, key="test.Opaque"):
    """A statement that no dialect prints."""

    number: int


def test_what_has_no_text_is_found_in_the_metadata():
    first, second = Opaque(1), Opaque(2)
    func = PrimFunc([], s.Evaluate(0), attrs={"global_symbol": "main", "x": [first, second, first]})
    text = func.script()
    assert (
        'T.func_attr({"x": [metadata["test.Opaque"][0], metadata["test.Opaque"][1], metadata["test.Opaque"][0]]})'
        in text
    )
    assert text.endswith("    T.evaluate(0)\n\n# Metadata omitted. Use show_meta=True in script() method to show it.")
    assert (
        IRModule({"main": func})
        .script()
        .endswith("    T.evaluate(0)\n\n\n# Metadata omitted. Use show_meta=True in script() method to show it.")
    )
    front, _, rest = func.script(show_meta=True).partition("\n")
    assert rest.startswith("# from tvm.script import tir as T\n\n@T.prim_func")
    assert "Metadata omitted" not in rest
    code = front.removeprefix("metadata = tvm.ir.load_json(").removesuffix(")")
    loaded = load_json(eval(code))
    assert structural_equal(loaded["test.Opaque"], [first, second])


# -- showing --


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_show_prints_plain_text_where_there_is_no_terminal(capsys):
    MAIN.show()
    assert capsys.readouterr().out == "\n".join(LINES) + "\n"


def test_show_colours_the_text_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert isinstance(MAIN, Scriptable)
    MAIN.show(style="dark")
    assert "\x1b[" in terminal.getvalue()
    assert "prim_func" in terminal.getvalue()


def test_black_breaks_long_lines():
    pytest.importorskip("black")
    wide = [decl_buffer((1, 128), "float32", f"argument_{n}") for n in range(4)]
    text = PrimFunc(wide, s.Evaluate(0), attrs={"global_symbol": "main"}).script(black_format=True)
    assert '    argument_0: T.Buffer((1, 128), "float32"),' in text.splitlines()


# -- extension --


class Leaf(e.PrimExpr, key="test.Leaf"):
    """An expression that prints in its own way, and in another way inside of one dialect."""

    dtype: str = ""


def test_a_dialect_can_print_a_class_in_its_own_way():
    @prints(Leaf)
    def anywhere(p: Printer, leaf: Leaf) -> str:
        return "anywhere"

    @prints(Leaf, dialect="tir")
    def in_loops(p: Printer, leaf: Leaf) -> str:
        return p.tir("leaf")

    assert str(Leaf()) == "T.leaf"
    assert printer.find_handler(Leaf, "relax") is anywhere
    assert printer.find_handler(Leaf, "tir") is in_loops
    assert PrinterConfig().tir_prefix == "T"
