"""What the site computes as it is built: tables of settings from the dataclasses, and formulas as MathML."""

from __future__ import annotations

import html as entities
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from latex2mathml.converter import convert

from curioplan.cli import STAGES
from curioplan.config import LearnConfig
from curioplan.options import field_docs
from curioplan.presets import PRESETS, preset
from curioplan.stages.polo import polo_config
from curioplan.values import LEARNERS, learner_class, learner_config

MARKER = "<!-- tables of settings -->"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
ROLE = re.compile(r":(?:func|class|data|meth|mod):(<code>)~?(?:[\w.]+\.)?(\w+</code>)")
COMMANDS = {"learn": "train, as far as all learners share it", "reach": "reach (evaluate and play)"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables of settings where they belong."""
    return markdown.replace(MARKER, settings_tables()) if MARKER in markdown else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Set formulas as MathML, which browsers draw by themselves, and roles of docstrings as plain code."""
    return ROLE.sub(r"\1\2", FORMULA.sub(_mathml, html))


def _mathml(found: re.Match[str]) -> str:
    tag, formula = found[1], entities.unescape(found[2])
    math = convert(formula, display="block" if tag == "div" else "inline")
    return f'<{tag} class="arithmatex">{math}</{tag}>'


def settings_tables() -> str:
    """A table per stage and per learner: every setting in every preset, and what it means."""
    tables, shown = [], {}
    for stage, kind in STAGES.items():
        configs = [preset(name, kind) for name in PRESETS]
        tables.append(_section(COMMANDS.get(stage, stage), kind, _rows(configs, stage, shown)))
        if stage == "explore":
            polo = [polo_config(name) for name in PRESETS]
            rows = _rows(polo, "polo", shown, configs)
            tables.append(_section("polo, beyond explore", type(polo[0]), rows))
        if stage == "learn":
            tables += [_learner_table(algo) for algo in LEARNERS]
    return "\n\n".join(tables)


def _learner_table(algo: str) -> str:
    """What a learner adds to the settings that all share, and where it differs from them."""
    shared = [preset(name, LearnConfig) for name in PRESETS]
    configs = [learner_config(algo, name) for name in PRESETS]
    return _section(f"train --algo {algo}", learner_class(algo).Config, _rows(configs, algo, {}, shared))


def _section(title: str, kind: type, rows: Iterator[str]) -> str:
    about = (kind.__doc__ or "").strip().split("\n\n")[0]
    head = f"| setting | {' | '.join(PRESETS)} | meaning |\n|---|{'---|' * len(PRESETS)}---|"
    return "\n".join([f"## {title}\n", f"{about}\n", head, *rows])


def _rows(
    configs: Sequence[Any], stage: str, shown: dict[Any, str], base: Sequence[Any] = (), prefix: str = ""
) -> Iterator[str]:
    """A row per setting, nested ones by dotted name.

    Args:
        configs: The settings in every preset.
        stage: Whose they are.
        shown: Groups of settings that have a table already, and where; a group shown is not repeated.
        base: Settings in every preset that go without saying.
        prefix: What stands before the name of a nested setting.
    """
    docs, groups = field_docs(type(configs[0])), []
    for entry in fields(configs[0]):
        values = [getattr(config, entry.name) for config in configs]
        usual = [getattr(config, entry.name, None) for config in base]
        name, meaning = prefix + entry.name, docs.get(entry.name, "").replace("|", "\\|")
        if values == usual or not entry.init:
            continue
        if not is_dataclass(values[0]):
            cells = [f"**{_cell(value)}**" if value != values[0] else _cell(value) for value in values]
            yield f"| `{name}` | {' | '.join(cells)} | {meaning} |"
        elif (key := tuple(values)) in shown:
            yield f"| `{name}.…` | | | | {meaning} All as {shown[key]}. |"
        else:
            shown[key] = f"`{entry.name}.…` of {stage}"
            groups.append((values, usual if any(map(is_dataclass, usual)) else [], name))
    for values, usual, name in groups:
        yield from _rows(values, stage, shown, usual, f"{name}.")


def _cell(value: Any) -> str:
    if value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else f"{value}"
