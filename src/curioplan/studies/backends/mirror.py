"""A folder here kept in step with one on shared storage, by any URL that fsspec understands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from curioplan.errors import ConfigError, RunError

Stamp = tuple[int, int]  # when a file was changed, and its size


def is_url(storage: str) -> bool:
    """Whether files must be copied; a plain path is worked on where it is."""
    return "://" in storage


class Mirror:
    """Copies parts of a study between a URL and a folder, moving only what has changed here.

    Several jobs may keep parts of one run in step at the same time: a file is sent only if it was changed
    here, and removed there only if it was removed here. What is sent while a stage writes is whole: the
    manifest of a checkpoint goes after the files it names, as it is written.

    Args:
        url: The study on shared storage.
        folder: The study here.
    """

    def __init__(self, url: str, folder: Path) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ConfigError(
                "Shared storage needs fsspec: install curioplan with its extra, curioplan[ray]."
            ) from None
        self.url, self.folder = url, folder
        self._known: dict[str, Stamp] = {}
        with self._reaching():
            self._files, root = url_to_fs(url)
        self._root = root.rstrip("/")

    def pull(self, parts: list[str]) -> set[str]:
        """Fetch files, and all files of folders, where they exist there; their names."""
        with self._reaching():
            for part in parts:
                for name in self._there(part):
                    target = self.folder / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self._files.get_file(f"{self._root}/{name}", str(target))
                    self._known[name] = _stamp(target)
        return set(self._known)

    def push(self) -> None:
        """Send what was changed here since it was fetched or sent, and remove what was removed."""
        here = {name: stamp for name, stamp in self._here() if stamp != self._known.get(name)}
        with self._reaching():
            for name in sorted(here, key=lambda name: (_turn(name), name)):
                try:
                    content = (self.folder / name).read_bytes()
                except FileNotFoundError:  # replaced by a newer one meanwhile
                    continue
                self._send(name, content)
                self._known[name] = here[name]
            for name in [name for name in self._known if not (self.folder / name).exists()]:
                del self._known[name]
                if self._files.exists(f"{self._root}/{name}"):
                    self._files.rm_file(f"{self._root}/{name}")

    def _send(self, name: str, content: bytes) -> None:
        target = f"{self._root}/{name}"
        self._files.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
        part = f"{target}.part"
        self._files.pipe_file(part, content)
        self._files.mv(part, target)  # so that nobody reads half a file

    def _here(self) -> Iterator[tuple[str, Stamp]]:
        for path in sorted(self.folder.rglob("*")):
            if path.name == ".lock" or path.suffix == ".part":
                continue
            try:
                if path.is_file():
                    yield path.relative_to(self.folder).as_posix(), _stamp(path)
            except FileNotFoundError:  # replaced by a newer one meanwhile
                continue

    def _there(self, part: str) -> list[str]:
        place = f"{self._root}/{part}"
        if not self._files.exists(place):
            return []
        found = [place] if self._files.isfile(place) else self._files.find(place)
        return [name.removeprefix(f"{self._root}/") for name in found if not name.endswith(".part")]

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise ConfigError(f"{self.url} needs a package that is not installed: {error}") from None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.url} cannot be reached or used: {error}") from error


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _turn(name: str) -> int:
    """When to send a file: manifests after the files they name and the metrics they count, results last."""
    path = PurePosixPath(name)
    if path.parts[0] == "jobs":
        return 3
    if path.parent.name == "checkpoints" and path.suffix == ".json":
        return 2
    return 1 if path.name == "metrics.jsonl" else 0
