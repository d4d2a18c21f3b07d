"""Commands, and their options out of frozen dataclasses: one flag per field, nested by dots."""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from curioplan.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence each, with the nearest valid name where there is one."""

    def __init__(self, **keywords: Any) -> None:
        keywords |= {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(exit_on_error=False, **keywords)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all arguments or raise a :class:`ConfigError`."""
        try:
            parsed, rest = self.parse_known_args(arguments)
        except argparse.ArgumentError as error:
            raise ConfigError(_explain(error)) from None
        if rest:
            raise ConfigError(self._unknown(rest[0], arguments))
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print with its usage."""
        raise ConfigError(f"{message[0].upper()}{message[1:]}; {self.prog} --help shows how to call it.")

    def _unknown(self, flag: str, arguments: Sequence[str]) -> str:
        parser = self
        for argument in arguments:  # descend to the command whose flags are meant
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction) and argument in action.choices:
                    parser = action.choices[argument]
        name = flag.split("=")[0]
        if not flag.startswith("-"):
            return f"{parser.prog} does not expect the argument {flag}."
        known = [option for option in parser._option_string_actions if option.startswith("--")]
        return f"{parser.prog} has no option {name}{nearest(name, known)}"


Say = Callable[[str], None]
"""Tells the user something."""


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes:
        name: What it is called.
        text: What it does, in a line.
        examples: Calls of it, with a remark in brackets where one helps.
        add: Adds its options, given the words that follow its name.
        run: Does it, and says what came of it.
    """

    name: str
    text: str
    examples: tuple[str, ...]
    add: Callable[[Parser, Sequence[str]], None]
    run: Callable[[argparse.Namespace, Say], None]


def add_commands(parent: Parser, commands: Iterable[Command], words: Sequence[str]) -> Any:
    """Add commands to a parser, with the options of the one that is called alone: those of others cost time.

    Args:
        parent: The parser.
        commands: The commands.
        words: What the parser is to parse.

    Returns:
        What further commands can be added to.
    """
    added = parent.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands:
        title = "examples" if len(command.examples) > 1 else "example"
        parser = added.add_parser(
            command.name,
            help=command.text,
            description=f"{command.text}.",
            epilog="\n  ".join([f"{title}:", *command.examples]),
        )
        parser.set_defaults(run=command.run)
        if words[:1] == [command.name]:
            command.add(parser, words[1:])
    return added


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of a sentence that proposes the nearest valid name."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}."


def add_config(parser: argparse.ArgumentParser, config: Any, prefix: str = "") -> None:
    """Add a flag for every field of a dataclass instance, whose values are the defaults."""
    group = parser.add_argument_group(
        f"{prefix.rstrip('.') or 'settings'}", (type(config).__doc__ or "").strip().splitlines()[0]
    )
    for name, kind, value, text in _walk(config):
        if is_dataclass(value):
            add_config(parser, value, f"{prefix}{name}.")
            continue
        flag = f"--{prefix}{name}".replace("_", "-")
        text = f"{text} (default: {value})".replace("%", "%%")
        if get_origin(kind) is Literal:
            choices = [str(choice) for choice in get_args(kind)]
            group.add_argument(flag, type=str, choices=choices, dest=prefix + name, help=text)
        elif kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, dest=prefix + name, help=text)
        else:
            metavar = {int: "N", float: "X", str: "TEXT"}[kind]
            group.add_argument(flag, type=kind, dest=prefix + name, metavar=metavar, help=text)


def read_config(config: Any, parsed: argparse.Namespace, prefix: str = "") -> Any:
    """The dataclass instance with every field replaced that was given on the command line."""
    given = {}
    for name, _, value, _ in _walk(config):
        if is_dataclass(value):
            given[name] = read_config(value, parsed, f"{prefix}{name}.")
        elif (chosen := getattr(parsed, prefix + name, None)) is not None:
            given[name] = chosen
    return replace(config, **given)


def with_field(config: Any, name: str, value: Any, prefix: str = "") -> Any:
    """The settings with one field changed, given by its dotted name."""
    first, _, rest = name.partition(".")
    known = [entry.name for entry in fields(config) if entry.init]
    if first not in known:
        raise ConfigError(f"{type(config).__name__} has no setting {prefix}{first}{nearest(first, known)}")
    old = getattr(config, first)
    if is_dataclass(old) != bool(rest):
        problem = "is a group of settings" if is_dataclass(old) else "has no parts"
        raise ConfigError(f"{prefix}{first} of {type(config).__name__} {problem}: it cannot be set so.")
    if rest:
        return replace(config, **{first: with_field(old, rest, value, f"{prefix}{first}.")})
    return replace(config, **{first: _checked(prefix + first, get_type_hints(type(config))[first], value)})


def _checked(name: str, kind: Any, value: Any) -> Any:
    """A value of the type its field has; whole numbers pass for fractions."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{name} must be one of {', '.join(map(str, get_args(kind)))}, not {value}.")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"{name} must be of type {kind.__name__}, not {value!r}.")
    return value


def field_docs(cls: type) -> dict[str, str]:
    """The text that stands under each field of a dataclass, inherited ones included."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        docs |= _own_docs(base)
    return docs


def _own_docs(cls: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for entry, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(entry, ast.AnnAssign)
            and isinstance(entry.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            docs[entry.target.id] = " ".join(str(below.value.value).split())
    return docs


def _walk(config: Any) -> Iterator[tuple[str, Any, Any, str]]:
    """Name, type, value and text of every field that can be set."""
    hints, docs = get_type_hints(type(config)), field_docs(type(config))
    for entry in (entry for entry in fields(config) if entry.init):
        yield entry.name, hints[entry.name], getattr(config, entry.name), docs.get(entry.name, "")


def _explain(error: argparse.ArgumentError) -> str:
    message = str(error)
    if "invalid choice" in message:
        chosen = message.split("invalid choice: ")[1].split("'")[1]
        choices = _choices(error)
        name = message.split(":")[0].removeprefix("argument ")
        return f"{name} cannot be {chosen}{nearest(chosen, choices)}"
    return f"{message[0].upper()}{message[1:].rstrip('.')}."


def _choices(error: argparse.ArgumentError) -> list[str]:
    listed = str(error).split("choose from ")[1].rstrip(")")
    return [choice.strip().strip("'") for choice in listed.split(",")]
