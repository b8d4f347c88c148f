"""Draws what was measured: SVG files for docs/performance, from the results in bench/out/results.

Bars of ratios with their goal as a line, and speeds over the number of clients as curves. What was not measured is not
drawn. The results themselves are copied beside, so that a plot can be held to its numbers.

    python bench/plots.py [--results bench/out/results] [--to docs/performance]
"""

import argparse
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from harness.results import RESULTS
from harness.servers import ROOT

WIDTH, ROW, LEFT, RIGHT, TOP = 760, 22, 330, 60, 46
PLOT_HEIGHT = 260
COLOURS = ("#1f6feb", "#d97706", "#6b7280", "#15803d")
REACHED, MISSED = "#15803d", "#b91c1c"


@dataclass(frozen=True)
class Bar:
    """A value with its goal; `is_reached` None: there is none."""

    label: str
    value: float
    goal: float | None
    is_reached: bool | None


def svg(height: float, parts: Iterable[str]) -> str:
    """A picture of white ground, readable on any page."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
    head += f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def text(x: float, y: float, said: str, anchor: str = "start", **more: str) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(said)}</text>'


def bars(title: str, given: list[Bar]) -> str:
    """One bar a row; a dashed line where its goal is."""
    most = max(max(bar.value, bar.goal or 0) for bar in given) * 1.08 or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    parts = [text(12, 24, title, font_size="14", font_weight="bold")]
    for number, bar in enumerate(given):
        y = TOP + number * ROW
        colour = {None: COLOURS[2], True: REACHED, False: MISSED}[bar.is_reached]
        parts.append(text(LEFT - 8, y + 14, bar.label, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{y + 3}" width="{max(bar.value * scale, 1):.1f}" height="{ROW - 7}" fill="{colour}"/>'
        )
        parts.append(text(LEFT + bar.value * scale + 4, y + 14, f"{bar.value:.3g}"))
        if bar.goal is not None:
            x = LEFT + bar.goal * scale
            parts.append(f'<path d="M{x:.1f} {y}v{ROW - 1}" stroke="black" stroke-dasharray="3 2"/>')
    return svg(TOP + len(given) * ROW + 14, parts)


def curves(title: str, x_name: str, lines: dict[str, list[tuple[float, float]]]) -> str:
    """Values over a number that doubles from place to place."""
    places = sorted({x for points in lines.values() for x, _ in points})
    most = max(y for points in lines.values() for _, y in points) * 1.08
    left, right, bottom = 60, WIDTH - 170, TOP + PLOT_HEIGHT
    step = (right - left) / max(1, len(places) - 1)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + places.index(x) * step, bottom - y / most * PLOT_HEIGHT

    parts = [text(12, 24, title, font_size="14", font_weight="bold")]
    parts.append(f'<path d="M{left} {TOP}V{bottom}H{right}" fill="none" stroke="black"/>')
    parts += [text(at(x, 0)[0], bottom + 16, f"{x:g}", "middle") for x in places]
    parts.append(text((left + right) / 2, bottom + 34, x_name, "middle"))
    for part in (0.25, 0.5, 0.75, 1.0):
        y = bottom - part * PLOT_HEIGHT / 1.08
        parts.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#e5e7eb"/>')
        parts.append(text(left - 6, y + 4, f"{part * most / 1.08:.0f}", "end"))
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in sorted(points)))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(right + 12, TOP + 16 + 18 * number, name, fill=colour))
    return svg(bottom + 46, parts)


def plots(result: dict[str, Any], stem: str) -> dict[str, str]:
    """The pictures of one result, by the names of their files."""
    found = {}
    given = [
        Bar(each["what"], each["value"], _goal(each), each["reached"])
        for each in result["figures"]
        if _goal(each) is not None
    ]
    if given:
        found[stem] = bars(f"{result['name']}: {result['title']}", given)
    if stem in ("chat_speed", "engine_speed"):
        for what in ("decode", "prefill"):
            lines = _speeds(result["rows"], what)
            if any(len(points) > 1 for points in lines.values()):
                found[f"{stem}_{what}"] = curves(f"{result['title']}: {what}, tokens a second", "at once", lines)
    return found


def _goal(figure: dict[str, Any]) -> float | None:
    goal: float | None = figure["at_most"] if figure["at_most"] is not None else figure["at_least"]
    return goal


def _speeds(rows: list[dict[str, Any]], what: str) -> dict[str, list[tuple[float, float]]]:
    """Of both programs' rows: speeds over how many are at once, by kind."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if "clients" in row:
            lines.setdefault(f"{row['kind']}, {row['model']}", []).append((row["clients"], row[what]))
        elif row["what"] == what:
            lines.setdefault("engine", []).append((row["sequences"], row["engine"]))
            if row["peer"]:
                lines.setdefault("llama-batched-bench", []).append((row["sequences"], row["peer"]))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--to", type=Path, default=ROOT / "docs/performance")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    for path in sorted(given.results.glob("*.json")):
        shutil.copy(path, given.to / path.name)
        for name, picture in plots(json.loads(path.read_text()), path.stem).items():
            (given.to / f"{name}.svg").write_text(picture)
            print(given.to / f"{name}.svg")


if __name__ == "__main__":
    main()
