"""What the README and the page on the command line tell users to type is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from oneir.cli.main import COMMANDS, parser
from oneir.driver.stages import stages
from oneir.target import Target

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/command-line.md").read_text()
README = (ROOT / "README.md").read_text()
LINES = re.findall(r"^(?:\$ |    )(?:[^|\n]*; )?(oneir \w[^\n]*)$", README + PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_understood(line: str):
    words = shlex.split(line, comments=True)
    end = next((i for i, word in enumerate(words) if word in ("|", ";", ">")), len(words))
    assert parser().parse_args(words[1:end]).command == words[1]


def test_every_command_and_every_stage_is_shown():
    shown = {line.split()[1] for line in LINES}
    assert len(shown) == len(COMMANDS) and all(
        f"| `oneir {command} " in PAGE or f"`oneir {command}`" in PAGE for command in shown
    )
    assert re.findall(r"^\$ oneir show --stages .*\n((?:\w+  +.*\n)+)", PAGE, re.MULTILINE)[0] == "".join(
        f"{stage.phase:<11}{stage.name:<10}  {stage.what}\n" for stage in stages(Target("llvm"))
    )
