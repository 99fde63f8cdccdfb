"""The page of several benchmarks: each writes its own section and nothing else."""

from __future__ import annotations

import pytest

from benchmarks import page

TEXT = """# Page

<!-- written by python -m benchmarks.one --write-docs -->
old
<!-- end -->

By hand.

<!-- written by python -m benchmarks.two --write-docs -->
<!-- end -->
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "speed.md"
    path.write_text(TEXT)
    monkeypatch.setattr(page, "PAGE", path)
    return path


def test_a_section_is_replaced_and_the_rest_stays(file):
    page.write_section("benchmarks.one --write-docs", "new\n")
    page.write_section("benchmarks.two --write-docs", "second")
    text = file.read_text()
    assert "old" not in text
    head, hand, tail = text.partition("\nBy hand.\n")
    assert hand and head.endswith("\n\nnew\n<!-- end -->\n") and tail.endswith("\n\nsecond\n<!-- end -->\n")


def test_a_command_without_a_section_is_refused(file):
    with pytest.raises(ValueError, match=r"has no section that `python -m benchmarks.three` writes"):
        page.write_section("benchmarks.three", "text")
    assert file.read_text() == TEXT
