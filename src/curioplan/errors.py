"""The one exception family of the package."""


class CurioplanError(Exception):
    """Something the user can mend: the message says what was wrong, where, and what would be right.

    The command line prints the message without a traceback and exits with code 2.
    """


class DataError(CurioplanError):
    """A dataset that cannot be read, or does not fit its task."""


class EnvError(CurioplanError):
    """An environment that cannot be made, or lacks part of the goal interface."""


class ConfigError(CurioplanError):
    """A setting that is unknown, impossible, or differs from the run's."""


class RunError(CurioplanError):
    """A run folder that is locked, damaged, missing or cannot be written."""
