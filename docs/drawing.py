"""The drawing of packages as a picture: layers from top to bottom, as SVG that needs no script and no network.

GitHub draws the block marked `mermaid` of docs/architecture.md itself; docs/site_pages.py puts this picture in its
place.
"""

from __future__ import annotations

import re

BLOCK = re.compile(r"^```mermaid\ngraph TD\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH, HEIGHT, ROW = 84, 28, 66


def layers(edges: list[tuple[str, str]]) -> list[list[str]]:
    """The nodes by the length of the longest path from a node that nothing leads to. The graph has no circle."""
    above: dict[str, list[str]] = {}
    for start, end in edges:
        above.setdefault(start, [])
        above.setdefault(end, []).append(start)
    depth: dict[str, int] = {}

    def of(node: str) -> int:
        if node not in depth:
            depth[node] = max((of(other) + 1 for other in above[node]), default=0)
        return depth[node]

    rows: list[list[str]] = [[] for _ in range(max(map(of, above)) + 1)]
    place: dict[str, float] = {}
    for node in sorted(above, key=of):
        rows[of(node)].append(node)
    for row in rows:
        # Each node stands below what leads to it.
        row.sort(key=lambda node: sum(place[n] for n in above[node]) / max(1, len(above[node])))
        place |= {node: (i + 0.5) / len(row) for i, node in enumerate(row)}
    return rows


def svg(edges: list[tuple[str, str]]) -> str:
    """The picture of a graph."""
    rows = layers(edges)
    width = max(len(row) for row in rows) * (WIDTH + 24)
    centre = {
        node: ((i + 0.5) * width / len(row), HEIGHT + level * ROW)
        for level, row in enumerate(rows)
        for i, node in enumerate(row)
    }
    parts = [
        f'<svg viewBox="0 0 {width} {len(rows) * ROW}" role="img" aria-label="packages and their imports" '
        'style="max-width: 46rem; font: 13px sans-serif" fill="none" stroke="currentColor">'
    ]
    for start, end in edges:
        (x0, y0), (x1, y1) = centre[start], centre[end]
        y0, y1 = y0 + HEIGHT / 2, y1 - HEIGHT / 2
        bend = (y1 - y0) / 2
        curve = f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
        parts.append(f'<path opacity="0.5" d="{curve}"/>')
    for node, (x, y) in centre.items():
        corner = f'x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}"'
        box = f'{corner} width="{WIDTH}" height="{HEIGHT}" rx="5" fill="var(--md-default-bg-color)"'
        text = f'x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" stroke="none" fill="currentColor"'
        parts.append(f"<rect {box}/><text {text}>{node}</text>")
    return "".join([*parts, "</svg>"])


def drawn(markdown: str) -> str:
    """A page with pictures in place of its blocks marked `mermaid`."""
    return BLOCK.sub(lambda block: svg(re.findall(r"(\w+) --> (\w+)", block[1])), markdown)
