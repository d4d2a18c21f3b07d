"""The command ``curioplan play``: its arguments, and what it does."""

from __future__ import annotations

import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from curioplan.config import ReachConfig
from curioplan.errors import ConfigError
from curioplan.options import Command, Say
from curioplan.stages.command import add_device, add_folder, add_settings, environment_of, read_settings


def _add_play(parser: ArgumentParser, _: Sequence[str]) -> None:
    add_folder(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the address to listen on (default: 127.0.0.1, which only this machine reaches)",
    )
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="the port (default: 8000)")
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    parser.add_argument("--algo", default="td3", metavar="NAME", help="learner of the values (default: td3)")
    parser.add_argument("--values", default="", metavar="NAME", help="name of their training, if it has one")
    parser.add_argument(
        "--model", default="", metavar="NAME", help="name of the model (default: that of exploration)"
    )
    add_device(parser)
    add_settings(parser, ReachConfig)


def run(arguments: Namespace, say: Say) -> None:
    """Serve the playground until interrupted, and say where it is.

    Raises:
        ConfigError: The extra that serves is not installed.
    """
    try:
        from curioplan.web.server import is_loopback, play
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "websockets":
            raise
        raise ConfigError(
            "The playground needs websockets, which is not installed: pip install 'curioplan[web]'."
        ) from None
    from curioplan.web.playground import Playground

    config = read_settings(arguments, ReachConfig, environment_of(arguments.folder))
    playground = Playground.open(
        arguments.folder,
        config,
        algo=arguments.algo,
        values=arguments.values,
        model=arguments.model,
        device=arguments.device,
    )

    def ready(address: str) -> None:
        say(f"the playground is at {address} until you press Ctrl+C")
        if not is_loopback(arguments.host):
            say("everyone who reaches this machine can use it")
        if not arguments.no_open:
            webbrowser.open(address)

    play(playground, arguments.host, arguments.port, ready)


PLAY = Command(
    "play",
    "Open a page on which the agent of a run can be sent to goals, watched and pushed off course",
    ("curioplan play runs/maze", "curioplan play runs/maze --algo iql --port 9000 --no-open"),
    _add_play,
    run,
)
