"""Pages of the site that no file in docs/ holds: a hook of MkDocs, see mkdocs.yml.

The API reference has a page for each public package, read off the imported modules, since operators and the names of
TVMScript come to be when they are imported. Files outside of docs/ that pages link to become pages, so that such links
lead somewhere in the site as well as in the sources.
"""

from __future__ import annotations

import ast
import functools
import html
import importlib
import importlib.util
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import comparisons
import drawing
import notebooks
import reference_pages
import snippets

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# What other programs start or speak to, and what only holds converters, has no names for users.
NOT_PUBLIC = ("oneir.cli", "oneir.compat", "oneir.bench", "oneir.codegen", "oneir.topi.gpu")
OUTSIDE = re.compile(r"\]\(((?:\.\./)+)([\w./-]+)((?:#[\w-]+)?)\)")
LANGUAGES = {".py": "python", ".c": "c", ".cpp": "cpp", ".rs": "rust", ".mjs": "javascript", ".md": "markdown"}


def public_names(module: ModuleType) -> list[str]:
    """What a package offers: its `__all__`, or else its members, without modules and private names."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in dir(module) if not name.startswith("_") and name != "annotations"]
    return sorted(name for name in set(names) if not inspect.ismodule(getattr(module, name)))


def imports_of_pages() -> set[tuple[str, str]]:
    """The names that programs of pages import from OneIR, each with its module; modules that they import left out."""
    programs = [p[1] for page in DOCS.rglob("*.md") for p in snippets.SNIPPET.finditer(page.read_text())]
    nodes = [node for program in programs for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)]
    names = {(str(node.module), alias.name) for node in nodes for alias in node.names}
    ours = {(module, name) for module, name in names if module.split(".")[0] == "oneir"}
    return {(module, name) for module, name in ours if not is_module(module, name)}


def is_module(module: str, name: str) -> bool:
    found = getattr(importlib.import_module(module), name, None)
    return inspect.ismodule(found) or (found is None and importlib.util.find_spec(f"{module}.{name}") is not None)


@functools.cache
def packages() -> dict[str, list[str]]:
    """The public packages that offer names, each with these; and the modules that programs of pages import from."""
    import oneir

    found = {"oneir": public_names(oneir)}
    for module, name in sorted(imports_of_pages()):
        found.setdefault(module, []).append(name)
    for info in pkgutil.walk_packages(oneir.__path__, "oneir."):
        if not info.ispkg or info.name.startswith(NOT_PUBLIC) or "._" in info.name:
            continue
        names = public_names(importlib.import_module(info.name))
        if names:
            found[info.name] = names
    return dict(sorted(found.items()))


def signature_of(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def text_of(value: Any) -> str:
    """A docstring as Markdown: paragraphs of code are that, and in the others nothing is a heading, a link or HTML."""
    return "\n\n".join(map(paragraph, (inspect.getdoc(value) or "").split("\n\n")))


def paragraph(text: str) -> str:
    """A paragraph of a docstring: code, a list with a title (`Attributes`, underlined), or prose."""
    if is_code(text):
        return f"```python\n{textwrap.dedent(text)}\n```"
    titled = re.match(r"(\w+)\n---+\n", text)
    if titled:
        items = re.sub(r"^(\w[\w, *]*):", r"- \1:", text[titled.end() :], flags=re.MULTILINE)
        return f"**{titled[1]}**\n\n{prose(items)}"
    return prose(text)


def is_code(text: str) -> bool:
    """Whether a paragraph is Python that calls, binds or imports something; sentences are not."""
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(text))))
    except SyntaxError:
        return False
    return any(isinstance(node, (ast.Call, ast.Assign, ast.Import, ast.ImportFrom)) for node in nodes)


def prose(text: str) -> str:
    """Text in which nothing is a heading, a link or HTML."""
    text = html.escape(text, quote=False)
    text = re.sub(r"`[^`\n]+`", lambda code: html.unescape(code[0]), text)
    text = re.sub(r"^(#+ |---|===)", r"\\\1", text, flags=re.MULTILINE)
    text = re.sub(r"\]([(\[])", r"]\\\1", text)
    return re.sub(r"(`[^`\n]+`)|\*", lambda found: found[1] or r"\*", text)


def source_of(value: Any) -> str:
    """The file that defines a value, relative to the package's folder, or nothing."""
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(value)) or "")
        return f" *in `{path.relative_to(ROOT / 'src' / 'oneir').as_posix()}`*"
    except (TypeError, ValueError):
        return ""


def members_of(cls: type) -> list[str]:
    """The methods and properties of a class, with those of bases that are not public: `Schedule`'s parts."""
    public = {name for names in packages().values() for name in names}
    parts = [base for base in cls.__mro__[1:] if base.__module__.startswith("oneir") and base.__name__ not in public]
    members = {name: member for part in (*reversed(parts), cls) for name, member in vars(part).items()}
    lines = []
    for name, member in members.items():
        if name.startswith("_"):
            continue
        value = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(value, property):
            value, signature = value.fget, ""
        elif inspect.isfunction(value):
            signature = signature_of(value)
        else:
            continue
        text = text_of(value).replace("\n", "\n    ")
        lines.append(f"- `#!python {name}{signature}`\n\n    {text}\n" if text else f"- `#!python {name}{signature}`\n")
    return lines


def entry(package: str, name: str) -> str:
    """The section of one name: signature, docstring, and the methods of a class."""
    value = getattr(importlib.import_module(package), name)
    described = callable(value) and getattr(value, "__module__", "").startswith("oneir")
    lines = [f"## `{name}` {{ #{package}.{name} }}\n"]
    if not described:
        return "\n".join([*lines, f"A value of the type `{type(value).__name__}`.\n"])
    lines.append(f"```python\n{name}{signature_of(value)}\n```\n{source_of(value)}\n")
    lines.append(text_of(value) + "\n")
    if inspect.isclass(value):
        lines += members_of(value)
    return "\n".join(lines)


def package_page(package: str) -> str:
    text = text_of(importlib.import_module(package))
    return "\n".join([f"# {package}\n", text, "", *(entry(package, name) for name in packages()[package])])


def index_page() -> str:
    rows = [f"| [`{package}`]({package}.md) | {len(names)} |" for package, names in packages().items()]
    what = "Every public name of every public package, read off the sources when this site was built."
    return "\n".join(["# API reference\n", what, "", "| package | names |", "| --- | --- |", *rows, ""])


def outside(page: Path, link: re.Match[str]) -> str | None:
    """The file outside of docs/ that a link in a page leads to, relative to the repository; None for one of docs/."""
    path = (page.parent / (link[1] + link[2])).resolve()
    return None if path.is_relative_to(DOCS) else path.relative_to(ROOT).as_posix()


def linked_files() -> set[str]:
    """The files outside of docs/ that its pages link to, relative to the repository."""
    found = (outside(page, link) for page in DOCS.rglob("*.md") for link in OUTSIDE.finditer(page.read_text()))
    return {path for path in found if path is not None}


def file_page(path: str) -> str:
    return f"# {path}\n\n`````{LANGUAGES.get(Path(path).suffix, 'text')}\n{(ROOT / path).read_text()}\n`````\n"


def pages() -> dict[str, str]:
    """All pages that this module writes, by their paths in the site's sources."""
    made = {"api/index.md": index_page()}
    made |= {f"api/{package}.md": package_page(package) for package in packages()}
    made |= reference_pages.pages()
    made |= {f"source/{path}.md": file_page(path) for path in sorted(linked_files())}
    runnable = [page for page in DOCS.rglob("*.md") if is_runnable(page.read_text())]
    return made | {
        page.relative_to(DOCS).with_suffix(".ipynb").as_posix(): notebooks.text(page.read_text()) for page in runnable
    }


def is_runnable(page: str) -> bool:
    """Whether a page is a session of programs that a reader can run: one with what they print."""
    return any(match[3] for match in snippets.SNIPPET.finditer(page))


# The hooks that MkDocs calls.


def on_config(config: Any) -> Any:
    entries = [{package: f"api/{package}.md"} for package in packages()]
    config.nav.append({"API reference": [{"Packages": "api/index.md"}, *entries]})
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri.startswith(("api/", "source/")):
        return markdown

    def of_site(link: re.Match[str]) -> str:
        path = outside(DOCS / page.file.src_uri, link)
        up = "../" * page.file.src_uri.count("/")
        return link[0] if path is None else f"]({up}source/{path}.md{link[3]})"

    markdown = comparisons.filled(markdown)
    if is_runnable(markdown):
        name = Path(page.file.src_uri).with_suffix(".ipynb").name
        markdown = markdown.replace("\n\n", f"\n\n[This page as a notebook]({name}){{ .md-button download }}\n\n", 1)
    return drawing.drawn(OUTSIDE.sub(of_site, markdown))


def without_foreign_scripts(output: str, **_: Any) -> str:
    """A page with our own worker for searching files, in place of the theme's, which is fetched from elsewhere."""
    fetched = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
    return output.replace(fetched, f"<script>{(DOCS / 'frame_worker.js').read_text()}</script>")


on_post_page = without_foreign_scripts


def on_post_template(output_content: str, **_: Any) -> str:
    return without_foreign_scripts(output_content)
