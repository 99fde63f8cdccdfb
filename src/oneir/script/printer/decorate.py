"""Underlining, line numbers and cuts in printed text.

The printer puts two private characters around the text of nodes to underline; `decorate` takes them out again.
"""

from __future__ import annotations

from ...runtime.script_printer import PrinterConfig

_BEGIN, _END = "\ue000", "\ue001"
_MIN_LINES_TO_CUT = 2


def mark(text: str) -> str:
    """A text that will be underlined."""
    return f"{_BEGIN}{text}{_END}"


def decorate(lines: list[str], config: PrinterConfig) -> str:
    """The lines as one text, with carets under what was marked."""
    carets: list[str] = []
    if config.obj_to_underline or config.path_to_underline:
        pairs = [_unmark(line) for line in lines]
        lines, carets = [clean for clean, _ in pairs], [under for _, under in pairs]
    width = len(str(len(lines))) + 1 if config.print_line_numbers else 0
    out = []
    cut_from = 0
    for first, end in _visible(carets, len(lines), config.num_context_lines):
        if first > cut_from:
            out.append(f"(... {first - cut_from} lines skipped ...)")
        for i in range(first, end):
            out.append(f"{i + 1:>{width - 1}} {lines[i]}" if width else lines[i])
            if carets and carets[i]:
                out.append(" " * width + carets[i])
        cut_from = end
    if cut_from < len(lines):
        out.append(f"(... {len(lines) - cut_from} lines skipped ...)")
    return "\n".join(out).rstrip()


def _unmark(line: str) -> tuple[str, str]:
    """A line without its marks, and the carets below it."""
    if _BEGIN not in line:
        return line, ""
    clean, under, depth = [], [], 0
    for char in line:
        if char == _BEGIN:
            depth += 1
        elif char == _END:
            depth -= 1
        else:
            clean.append(char)
            under.append("^" if depth else " ")
    return "".join(clean), "".join(under).rstrip()


def _visible(carets: list[str], num_lines: int, context: int) -> list[tuple[int, int]]:
    """The ranges of lines to print: those with carets, and `context` lines around each."""
    if context < 0 or not any(carets):
        return [(0, num_lines)]
    ranges: list[tuple[int, int]] = []
    for i, under in enumerate(carets):
        if not under:
            continue
        first, end = max(0, i - context), min(num_lines, i + 1 + context)
        if ranges and first < ranges[-1][1] + _MIN_LINES_TO_CUT:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((0 if first < _MIN_LINES_TO_CUT else first, end))
    first, end = ranges[-1]
    if num_lines - end < _MIN_LINES_TO_CUT:
        ranges[-1] = (first, num_lines)
    return ranges
