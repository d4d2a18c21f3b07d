"""What a page may ask for: JSON objects, each with a ``type`` and the fields that belong to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from curioplan.errors import CurioplanError
from curioplan.options import nearest

LARGEST = 4096  # characters of a message
LONGEST = 100  # numbers in a vector
FARTHEST = 1e6  # no number is beyond
LANDSCAPES = ("none", "values", "aggregated")
PACES = (5, 10, 25, 50, 100)  # steps per second

Message = dict[str, Any]


class MessageError(CurioplanError):
    """A message that makes no sense; the page is told why."""


def read_message(text: str | bytes) -> tuple[str, Message]:
    """The type and the fields of a message.

    Raises:
        MessageError: It is none of those that are known.
    """
    if isinstance(text, bytes):
        raise MessageError("Messages are text, not bytes.")
    if len(text) > LARGEST:
        raise MessageError(f"A message has at most {LARGEST} characters.")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError("A message must be valid JSON.") from None
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        raise MessageError('A message must be an object with a "type".')
    kind = content.pop("type")
    if kind not in FIELDS:
        raise MessageError(f"There is no message {kind[:40]!r}{nearest(kind[:40], list(FIELDS))}")
    wanted = FIELDS[kind]
    if content.keys() != wanted.keys():
        fields = " and ".join(wanted) or "no other field"
        raise MessageError(f"A message {kind} has {fields}, not {str(sorted(content))[:100]}.")
    return kind, {name: check(f"{name} of {kind}", content[name]) for name, check in wanted.items()}


def _vector(what: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= LONGEST:
        raise MessageError(f"The {what} must be a list of numbers.")
    # Comparing is exact for integers of any size, and false for NaN.
    if not all(type(number) in (int, float) and -FARTHEST <= number <= FARTHEST for number in value):
        raise MessageError(f"The {what} must hold numbers within ±{FARTHEST:g}.")
    return tuple(map(float, value))


def _point(what: str, value: Any) -> tuple[float, ...]:
    point = _vector(what, value)
    if len(point) != 2:
        raise MessageError(f"The {what} must be two numbers.")
    return point


def _name(what: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
        raise MessageError(f"The {what} must be a name.")
    return value


def _switch(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise MessageError(f"The {what} must be true or false.")
    return value


def _one_of(choices: tuple[Any, ...]) -> Callable[[str, Any], Any]:
    def check(what: str, value: Any) -> Any:
        if type(value) is not type(choices[0]) or value not in choices:
            raise MessageError(f"The {what} must be one of {', '.join(map(str, choices))}.")
        return value

    return check


FIELDS: dict[str, dict[str, Callable[[str, Any], Any]]] = {
    "goal": {"goal": _vector},
    "case": {"name": _name},
    "click": {"at": _point},
    "push": {"by": _point},
    "move": {"to": _point},
    "controller": {"name": _name},
    "show": {"landscape": _one_of(LANDSCAPES), "graph": _switch, "plans": _switch},
    "pace": {"rate": _one_of(PACES)},
    "play": {},
    "pause": {},
    "step": {},
    "reset": {},
}
