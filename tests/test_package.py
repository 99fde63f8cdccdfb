"""What is said about the package in several places agrees. `.ci/package` builds, installs and tries it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()


def test_the_recipe_asks_for_what_the_wheel_asks_for():
    [run] = re.findall(r"^  run:\n((?:    - .*\n)+)", RECIPE, re.MULTILINE)
    wanted = {line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()}
    assert wanted == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    [command] = re.findall(r"^    - (oneir = .*)$", RECIPE, re.MULTILINE)
    assert command == f"oneir = {PROJECT['scripts']['oneir']}"
    assert f"license: {PROJECT['license']}" in RECIPE and PROJECT["description"] in RECIPE


def test_every_extra_that_a_message_names_exists():
    named = set()
    for path in [*(ROOT / "src").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for extras in re.findall(r"oneir\[([\w,]+)\]", path.read_text()):
            named.update(extras.split(","))
    assert named - {"llm", "serve"} and named <= set(PROJECT["optional-dependencies"])


def test_the_page_lists_every_extra():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert rows == [name for name in PROJECT["optional-dependencies"] if name != "dev"]
