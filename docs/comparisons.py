"""The figures of docs/comparisons.md, worked out of the tables on the pages that benchmarks write.

    python docs/comparisons.py     # prints the page with its figures

The page has a comment, `<!-- figures: models -->`, in the place of each table; the site has the tables in their places.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
PLACE = re.compile(r"<!-- figures: ([\w-]+) -->")


def tables(page: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The tables of a page, each with the heading above it, as rows of cells by the name of their column."""
    heading, rows, head = "", [], []
    for line in [*(DOCS / page).read_text().splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not head:
                head = cells
            elif set(line) - set("|-: "):
                rows.append(dict(zip(head, cells, strict=True)))
            continue
        if rows:
            yield heading, rows
        rows, head = [], []
        heading = line.lstrip("# ") if line.startswith("#") else heading


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def milliseconds() -> dict[int, dict[str, dict[str, float]]]:
    """Of whole models: the time of each contestant by threads, contestant and model."""
    found: dict[int, dict[str, dict[str, float]]] = {}
    for heading, rows in tables("benchmarks.md"):
        threads = re.match(r"(\d+) threads?$", heading)
        for row in rows if threads else ():
            for peer, cell in row.items():
                if peer not in ("Model", "OneIR / best") and re.fullmatch(r"[\d.,]+", cell):
                    of = found.setdefault(int(threads[1]), {}).setdefault(peer, {})
                    of[row["Model"]] = float(cell.replace(",", ""))
    return found


def models() -> str:
    """Speed over each other contestant on the models that both ran."""
    measured, rows = milliseconds(), []
    for peer in dict.fromkeys(peer for of in measured.values() for peer in of if peer != "OneIR"):
        row = [peer]
        for of in measured.values():
            ratios = [of[peer][model] / ms for model, ms in of["OneIR"].items() if model in of[peer]]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            row += [f"{mean:.2f}", f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"]
        rows.append(row)
    head = [f"{what}, {n} thread{'s' * (n > 1)}" for n in measured for what in ("times as fast", "faster on")]
    return table(["beside", *head], rows)


def language_models() -> str:
    """Speed over llama.cpp, with the range of the rows of its page."""
    rows = next(rows for _, rows in tables("llm.md") if "decode at 16" in rows[0])
    columns = [column for column in rows[0] if column]
    speeds = [[row[""], *(row[column].rpartition(" = ")[2] for column in columns)] for row in rows]
    return table(["times as fast as llama.cpp", *columns], speeds)


def int8() -> str:
    """Speed over ONNX Runtime on models of 8 bits."""
    found: dict[tuple[str, str], list[str]] = {}
    rows = next(rows for _, rows in tables("int8.md"))
    for row in rows:
        time = float(row["time / ONNX Runtime's"])
        found.setdefault((row["model"], row["activations"]), []).append(f"{1 / time:.2f}")
    counts = list(dict.fromkeys(row["threads"] for row in rows))
    head = [f"times as fast, {n} thread{'s' * (n != '1')}" for n in counts]
    return table(["model", *head], [[f"{model}, {dtype}", *cells] for (model, dtype), cells in found.items()])


def web() -> str:
    """Speed over onnxruntime-web."""
    rows = next(rows for _, rows in tables("web.md") if "times as fast" in rows[0])
    return table(["model", "times as fast as onnxruntime-web"], [[row["model"], row["times as fast"]] for row in rows])


def onnx_tests() -> str:
    """The sentence of docs/onnx.md that says how many published tests pass."""
    found = re.search(r"^\d+ of \d+ tests pass", (DOCS / "onnx.md").read_text(), re.MULTILINE)
    assert found is not None, "docs/onnx.md says how many tests pass"
    return found[0].replace(" tests pass", "")


FIGURES = {"models": models, "language-models": language_models, "int8": int8, "web": web, "onnx-tests": onnx_tests}


def filled(page: str) -> str:
    """A page with the tables that it has places for."""
    return PLACE.sub(lambda place: FIGURES[place[1]](), page)


if __name__ == "__main__":
    print(filled((DOCS / "comparisons.md").read_text()))
