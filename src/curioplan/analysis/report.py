"""One self-contained page: text, tables, charts and pictures, nothing from anywhere else."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from curioplan.analysis.style import COLOURS

KINDS = {".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4", ".svg": "image/svg+xml"}
POINTS = 400  # of a line, at most: more are not told apart
WIDTH, HEIGHT = 360.0, 170.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 10.0, 10.0, 34.0  # room around a chart

STYLE = """
:root { color-scheme: light dark; --page: #fbfbf9; --card: #ffffff; --ink: #1d2127; --quiet: #5b6470;
  --line: #dcdcd6; --mark: #005b8f; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --card: #1e2228; --ink: #e8e9e6;
  --quiet: #a4adb8; --line: #363c45; --mark: #6cc0f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header, main, footer { max-width: 62rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; } footer { padding-bottom: 3rem; color: var(--quiet); }
h1 { font-size: 1.7rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin: 0 0 .6rem; }
h3 { font-size: 1rem; margin: 1.1rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .3rem 0 .7rem; } .quiet { color: var(--quiet); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .8rem 0 1.2rem; }
a { color: var(--mark); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem;
  margin: 0 0 1rem; }
.scroll { overflow-x: auto; margin-bottom: .9rem; } .scroll:focus-visible { outline: 2px solid var(--mark); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
figure { margin: .6rem 0 1rem; } figcaption { color: var(--quiet); font-size: .9rem; margin-top: .3rem; }
.pair { display: grid; gap: 0 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); }
img, video { display: block; max-width: 100%; height: auto; background: #ffffff; border-radius: 6px;
  padding: 6px; }
svg.chart { display: block; width: 100%; height: auto; max-width: 30rem; }
svg.chart text { fill: var(--quiet); font-size: 11px; } svg.chart .axis { stroke: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .85rem; }
.legend span::before { content: ""; display: inline-block; width: .9em; height: .25em; margin-right: .35em;
  vertical-align: middle; background: var(--series); }
pre { overflow-x: auto; background: var(--page); border: 1px solid var(--line); border-radius: 6px;
  padding: .7rem; font-size: .86rem; margin: .4rem 0; }
code { font-family: ui-monospace, "SF Mono", Consolas, monospace; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--mark); }
"""


@dataclass
class Page:
    """A page that is written part by part; all text is escaped.

    Args:
        title: Its title.
        lead: A sentence beneath it.
    """

    title: str
    lead: str = ""
    _sections: list[tuple[str, list[str]]] = field(default_factory=list)

    def section(self, title: str) -> None:
        """Begin a section."""
        self._sections.append((title, []))

    def heading(self, text: str) -> None:
        """Add a heading within the section."""
        self._add(f"<h3>{escape(text)}</h3>")

    def text(self, text: str, *, quiet: bool = False) -> None:
        """Add a paragraph."""
        self._add(f"<p{' class=quiet' if quiet else ''}>{escape(text)}</p>")

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; columns after the first that hold numbers are aligned to the right."""
        numeric = [
            number > 0 and all(_is_number(row[number]) for row in rows) for number in range(len(heading))
        ]
        head = "".join(_cell("th", text, right) for text, right in zip(heading, numeric, strict=True))
        body = "".join(
            f"<tr>{''.join(_cell('td', text, right) for text, right in zip(row, numeric, strict=True))}</tr>"
            for row in rows
        )
        label = escape(f"table: {', '.join(text for text in heading if text)}", quote=True)
        self._add(
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><thead><tr>{head}'
            f"</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def pairs(self, values: Mapping[str, str], title: str) -> None:
        """Add names and values, folded up under a title."""
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in values.items()
        )
        label = escape(title, quote=True)
        self._add(
            f"<details><summary>{escape(title)}</summary>"
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><tbody>{rows}'
            "</tbody></table></div></details>"
        )

    def commands(self, lines: Sequence[str]) -> None:
        """Add commands to be typed."""
        self._add(f'<pre tabindex="0"><code>{escape(chr(10).join(lines))}</code></pre>')

    def picture(self, path: Path, alt: str, caption: str = "") -> None:
        """Add a picture or a video from a file, kept within the page.

        Args:
            path: The file.
            alt: What is to be seen, in words.
            caption: What stands beneath; by default the same.
        """
        source = f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
        words = escape(alt, quote=True)
        if path.suffix == ".mp4":
            options = 'controls muted playsinline preload="auto"'
            shown = f'<video {options} aria-label="{words}" src="{source}"></video>'
        else:
            shown = f'<img alt="{words}" src="{source}">'
        self._add(f"<figure>{shown}<figcaption>{escape(caption or alt)}</figcaption></figure>")

    def charts(self, charts: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], xlabel: str) -> None:
        """Add line charts side by side, by title; each holds series of points by name."""
        drawn = [_chart(title, series, xlabel) for title, series in charts.items()]
        self._add(f'<div class="pair">{"".join(drawn)}</div>')

    def html(self) -> str:
        """The page."""
        links = "".join(
            f'<a href="#part-{number}">{escape(title)}</a>'
            for number, (title, _) in enumerate(self._sections, start=1)
        )
        sections = "\n".join(
            f'<section id="part-{number}"><h2>{escape(title)}</h2>\n{chr(10).join(parts)}\n</section>'
            for number, (title, parts) in enumerate(self._sections, start=1)
        )
        # The icon is empty, so that no browser asks for one.
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{escape(self.title)}</title>\n<link rel="icon" href="data:,">\n'
            f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{escape(self.title)}</h1>"
            f'<p class="quiet">{escape(self.lead)}</p><nav aria-label="parts of this page">{links}</nav>'
            f"</header>\n<main>\n{sections}\n</main>\n<footer><p>Written by curioplan report.</p></footer>\n"
            "</body>\n</html>\n"
        )

    def _add(self, html: str) -> None:
        self._sections[-1][1].append(html)


def _cell(tag: str, text: str, right: bool) -> str:
    return f"<{tag}{' class=number' if right else ''}>{escape(text)}</{tag}>"


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] in "-–−"


def _chart(title: str, series: Mapping[str, Sequence[tuple[float, float]]], xlabel: str) -> str:
    """Lines as SVG whose text follows the page's colours, with a legend where there are several."""
    known = {
        name: [point for point in points if all(map(math.isfinite, point))] for name, points in series.items()
    }
    known = {name: _thinned(points) for name, points in known.items() if points}
    if not known:
        return ""
    xs, ys = ([point[axis] for points in known.values() for point in points] for axis in (0, 1))
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = _room(min(ys), max(ys))
    marks = _marks(y_low, y_high)
    across = (WIDTH - LEFT - RIGHT) / ((x_high - x_low) or 1)
    down = (HEIGHT - TOP - BOTTOM) / ((y_high - y_low) or 1)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (x - x_low) * across, HEIGHT - BOTTOM - (y - y_low) * down

    parts = []
    for mark in marks:
        y = place(x_low, mark)[1]
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    for x, anchor in ((x_low, "start"), (x_high, "end"))[: 1 if x_low == x_high else 2]:
        at = f'x="{place(x, y_low)[0]:.1f}" y="{HEIGHT - BOTTOM + 14}"'
        parts.append(f'<text {at} text-anchor="{anchor}">{x:,.0f}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 5}" text-anchor="middle">{escape(xlabel)}</text>'
    )
    for number, points in enumerate(known.values()):
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
        colour = COLOURS[number % 6]  # those that are seen on light and dark alike
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(points) == 1:
            x, y = place(*points[0])
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
    legend = "".join(
        f'<span style="--series: {COLOURS[number % 6]}">{escape(name)}</span>'
        for number, name in enumerate(known)
    )
    label = escape(f"{title} over {xlabel}", quote=True)
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg class="chart" role="img" aria-label="{label}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}">'
        f"{''.join(parts)}</svg>{f'<div class=legend>{legend}</div>' if len(known) > 1 else ''}</figure>"
    )


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Evenly chosen points, the last included."""
    every = -(-len(points) // POINTS)
    return [*points[:-1:every], points[-1]]


def _room(low: float, high: float) -> tuple[float, float]:
    """Where an axis begins and ends that shows all from low to high, or one number in its middle."""
    if high - low <= 1e-9 * max(1e-6, abs(high)):
        half = 0.5 * abs(high) or 0.5
        return low - half, high + half
    return low, high


def _marks(low: float, high: float) -> list[float]:
    """Some round numbers between two, for an axis."""
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * size for size in (1, 2, 5, 10) if power * size >= raw)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
