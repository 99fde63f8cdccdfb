"""A page with programs becomes a notebook with their outputs, and each page of programs has one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import notebooks
import site_pages
import snippets

DOCS = Path(__file__).parents[1] / "docs"
PAGE = """# A [page](x.md#y)

![picture](a.svg){ width=300 }

```python
print(1)
```

```text
1
```

Between, see [there](https://example.org).

```python
print(2)
raise ValueError("of\\ntwo lines")
```

```pytb
2
ValueError: of
two lines
```
"""


def test_programs_are_cells_with_outputs_and_the_text_between_them_is_one():
    made = notebooks.notebook(PAGE)
    kinds = [(cell["cell_type"], "".join(cell["source"])) for cell in made["cells"]]
    assert kinds == [
        ("markdown", "# A page"),
        ("code", "print(1)"),
        ("markdown", "Between, see [there](https://example.org)."),
        ("code", 'print(2)\nraise ValueError("of\\ntwo lines")'),
    ]
    first, second = (cell for cell in made["cells"] if cell["cell_type"] == "code")
    assert first["outputs"] == [{"output_type": "stream", "name": "stdout", "text": ["1"]}]
    printed, error = second["outputs"]
    assert printed["text"] == ["2"] and (error["ename"], error["evalue"]) == ("ValueError", "of\ntwo lines")
    assert second["metadata"] == {"tags": ["raises-exception"]} and first["metadata"] == {}
    assert len({cell["id"] for cell in made["cells"]}) == 4


def test_cells_of_a_notebook_run_in_order_and_print_what_it_shows():
    made = notebooks.notebook((DOCS / "tutorials" / "schedule.md").read_text())
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            printed = snippets.result("".join(cell["source"]), names, raises=False)
            assert printed.rstrip("\n") == "".join(line for output in cell["outputs"] for line in output["text"])


def test_every_page_of_programs_has_a_notebook_that_it_links_to():
    made = site_pages.pages()
    written = {path.removesuffix(".ipynb") for path in made if path.endswith(".ipynb")}
    assert {"walkthrough", "tutorials/first-model", "contribute/operator"} <= written
    assert "glossary" not in written and json.loads(made["walkthrough.ipynb"])["nbformat"] == 4


def test_one_page_on_the_command_line(tmp_path: Path):
    (tmp_path / "page.md").write_text(PAGE)
    command = [sys.executable, DOCS / "notebooks.py", tmp_path / "page.md", tmp_path / "page.ipynb"]
    subprocess.run(command, check=True)
    assert json.loads((tmp_path / "page.ipynb").read_text()) == notebooks.notebook(PAGE)
