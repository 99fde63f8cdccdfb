"""Every graph of the five reference documents parses as it was published; what was printed prints the same way again.

`tests/documents` holds them: 000 and 003 as printed, 001 in the oldest spelling, 002 without indentation (restored there),
004 in both hand-written and printed style.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir import assert_structural_equal, load_json, save_json
from oneir.ir.visitor import post_order_visit
from oneir.relax.expr import Call, DataflowBlock, ExternFunc, Function
from oneir.runtime.error import ParseError
from oneir.script import from_source

FOLDER = Path(__file__).parent.parent.parent / "documents"
# Where the documents' graphs stand, in a cell or in what it prints.
FILES = {
    "000_built": "000/09.txt",
    "000_emit_te": "000/17.txt",
    "000_matmul": "000/02.py",
    "000_mixed": "000/12.py",
    "000_mlp": "000/04.py",
    "001_extern": "001/22.py",
    "001_mixture": "001/26.py",
    "001_module": "001/08.py",
    "002_built": "002/04.txt",
    "002_high_level": "002/15.txt",
    "002_mlp": "002/14.txt",
    "002_traced": "002/13.txt",
    "003_exported": "003/04.txt",
    "003_fused": "003/10.txt",
    "003_imported": "003/03.txt",
    "003_legalized": "003/08.txt",
    "003_main": "003/07.txt",
    "003_parsed": "003/05.txt",
    "003_script": "003/05.py",
    "004_extern": "004/11.py",
    "004_mixture": "004/12.py",
    "004_module": "004/03.py",
    "004_params": "004/13.txt",
    "004_printed": "004/07.py",
}
NAMES = list(FILES)
CONSTANTS = {
    "002_high_level": [(128, 784), (128,), (10, 128), (10,)],
    "002_mlp": [(128, 784), (128,), (10, 128), (10,)],
    "002_traced": [(128, 128)],
    "004_params": [(128, 784), (128,), (10, 128), (10,)],
}
# These return a variable of a dataflow block that is none of its outputs, as the builder of that time allowed.
ILL_FORMED = {"002_high_level", "002_mlp", "002_traced"}
HEADER = "# from tvm.script import {} as {}"


def document(name: str) -> str:
    """The module or function in a cell: from its decorator, or the header of a print, to the line that ends it."""
    text = (FOLDER / FILES[name]).read_text(encoding="utf-8")
    found = re.search(r"(?ms)^(# from tvm|@).*?\n        return \w+$|^# from tvm.*", text)
    assert found is not None
    return found[0].rstrip()


def metadata(name: str) -> dict[str, list[relax.Constant]]:
    arrays = [np.full(shape, i, "float32") for i, shape in enumerate(CONSTANTS.get(name, []))]
    return {"relax.expr.Constant": [relax.const(array) for array in arrays]}


def read(name: str, text: str | None = None):
    known = {"tvm": oneir, "metadata": metadata(name)}
    return from_source(document(name) if text is None else text, known, check_well_formed=name not in ILL_FORMED)


def calls(node) -> list[Call]:
    found: list[Call] = []
    post_order_visit(node, lambda n: found.append(n) if isinstance(n, Call) else None)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_document_parses_and_its_print_means_the_same(name: str):
    program = read(name)
    main = (
        program
        if isinstance(program, Function)
        else next(f for f in program.functions.values() if isinstance(f, Function))
    )
    assert any(isinstance(block, DataflowBlock) for block in main.body.blocks)
    text = program.script()
    known = {"metadata": {"relax.expr.Constant": list(constants_of(program))}}
    again = from_source(text, known, check_well_formed=name not in ILL_FORMED)
    assert_structural_equal(again, program)
    assert again.script() == text
    assert_structural_equal(load_json(save_json(program)), program)


def constants_of(program) -> list[relax.Constant]:
    found: list[relax.Constant] = []
    functions = [program] if isinstance(program, Function) else program.functions.values()
    for func in functions:
        if isinstance(func, Function):
            post_order_visit(
                func, lambda n: found.append(n) if isinstance(n, relax.Constant) and n.data.shape else None
            )
    return found


@pytest.mark.parametrize("name", ["imported", "exported", "parsed", "main", "fused"])
def test_document_003_prints_letter_for_letter(name: str):
    assert read(f"003_{name}").script() == document(f"003_{name}")


def test_document_003_prints_the_line_that_one_print_of_it_lacks():
    text = document("003_legalized")
    assert read("003_legalized").script() == "\n".join([HEADER.format("ir", "I"), text])


def test_the_hand_written_module_prints_as_the_document_shows():
    assert read("003_script").script() == document("003_parsed")


@pytest.mark.parametrize("name", ["000_matmul", "000_mlp", "000_built", "000_emit_te", "002_built"])
def test_older_prints_are_printed_in_the_style_of_003(name: str):
    text = document(name).replace("T.bool(True)", "True")
    dialects = [("ir", "I"), *([("tir", "T")] if "T.prim_func" in text else []), ("relax", "R")]
    assert read(name).script() == "\n".join([*[HEADER.format(*d) for d in dialects], "", text])


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_constants_are_numbered_in_their_order(name: str):
    text = document(name).replace("T.bool(True)", "True")
    dialects = [("ir", "I"), *([("tir", "T")] if "T.prim_func" in text else []), ("relax", "R")]
    note = "# Metadata omitted. Use show_meta=True in script() method to show it."
    assert read(name).script() == "\n".join([*[HEADER.format(*d) for d in dialects], "", text, "", "", note])


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_printed_metadata_is_read_back(name: str):
    program = read(name)
    text = program.script(show_meta=True)
    again = from_source(text, check_well_formed=name not in ILL_FORMED)
    assert_structural_equal(again, program)
    values = [c.data.numpy() for c in constants_of(again)]
    assert [v.shape for v in values] == CONSTANTS[name]
    assert all((v == i).all() for i, v in enumerate(values))


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_without_its_metadata_a_text_is_refused(name: str):
    with pytest.raises(ParseError, match="undefined name `metadata`; print the module with show_meta=True"):
        from_source(document(name), check_well_formed=False)


@pytest.mark.parametrize("name", sorted(ILL_FORMED))
def test_a_variable_that_is_no_output_of_its_block_is_refused(name: str):
    with pytest.raises(
        ParseError, match=r"`lv\d` is a variable of a dataflow block .* make it an output: R.output\(lv"
    ):
        from_source(document(name), {"metadata": metadata(name)})


@pytest.mark.parametrize(("old", "new"), [("001_module", "004_module"), ("001_mixture", "004_mixture")])
def test_old_and_new_spelling_are_one_program(old: str, new: str):
    assert_structural_equal(read(old), read(new))


def test_a_text_in_the_place_of_a_function_calls_the_runtime():
    program = read("001_extern")
    assert_structural_equal(program, read("004_extern"))
    assert program.script().count('R.call_dps_packed("env.linear", (x, w0, b0), out_sinfo=') == 1
    assert "R.call_tir" not in program.script()
    names = [call.args[0].global_symbol for call in calls(program["main"]) if isinstance(call.args[0], ExternFunc)]
    assert names == ["env.linear", "env.relu", "env.linear"]
