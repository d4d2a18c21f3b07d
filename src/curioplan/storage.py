"""Files that are either whole or absent, and checkpoints made of them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from curioplan.errors import RunError

log = logging.getLogger(__name__)

Tensors = Mapping[str, torch.Tensor]
FORMAT = 1
TENSOR = "$tensor"  # stands in the JSON of a tree for a tensor kept beside it


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that, killed at any moment, it is either the old one or the whole new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".part", dir=path.parent)
        try:
            try:
                _write_all(descriptor, content)
                os.fchmod(descriptor, 0o644)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)  # noqa: PTH105
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync(path.parent)
    except OSError as error:
        raise RunError(f"Cannot write {path}: {error.strerror or error}.") from error


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, readable by people."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file, with a clear error where it is missing or damaged."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:
        raise RunError(f"{path} is damaged: it is not valid JSON.") from error


def save_tensors(tensors: Tensors, metadata: dict[str, str] | None = None) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    whole = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(whole, metadata)


def _read_checked(path: Path, digest: str) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file whose checksum is known."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror or error}.") from error
    if _digest(content) != digest:
        raise RunError(f"{path} is damaged: its checksum does not match.")
    return safetensors.torch.load(content)


def flatten(tree: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Split a tree of dicts and lists into plain JSON and the tensors in it."""
    tensors: dict[str, torch.Tensor] = {}

    def visit(node: Any, path: str) -> Any:
        if isinstance(node, torch.Tensor):
            tensors[path] = node
            return {TENSOR: path}
        if isinstance(node, Mapping):
            return {_text(key): visit(value, f"{path}.{key}" if path else key) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [visit(value, f"{path}.{k}") for k, value in enumerate(node)]
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"{path} is a {type(node).__name__}, which a checkpoint cannot hold.")

    return visit(tree, ""), tensors


def unflatten(plain: Any, tensors: Tensors) -> Any:
    """The inverse of :func:`flatten` (tuples come back as lists)."""
    if isinstance(plain, dict):
        if plain.keys() == {TENSOR}:
            return tensors[plain[TENSOR]]
        return {key: unflatten(value, tensors) for key, value in plain.items()}
    if isinstance(plain, list):
        return [unflatten(value, tensors) for value in plain]
    return plain


def save_tree(path: Path, tree: Any) -> None:
    """Write a tree as one safetensors file: the plain part, and a checksum, in its metadata."""
    plain, tensors = flatten(tree)
    text = json.dumps(plain)
    digest = _tree_digest(text, save_tensors(tensors))
    # One key, since safetensors writes several in a random order.
    write_atomic(path, save_tensors(tensors, {"curioplan": json.dumps({"sha256": digest, "tree": text})}))


def load_tree(path: Path) -> Any:
    """Read what :func:`save_tree` wrote, with a clear error where it is missing or damaged."""
    try:
        content = path.read_bytes()
        metadata = json.loads(_header(content)["__metadata__"]["curioplan"])
        if _tree_digest(metadata["tree"], content) != metadata["sha256"]:
            raise ValueError("checksum")
        return unflatten(json.loads(metadata["tree"]), safetensors.torch.load(content))
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise RunError(f"{path} is damaged: its checksum does not match.") from error


def _header(content: bytes) -> dict[str, Any]:
    """The header of a safetensors file: eight bytes of length, then JSON."""
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header


def _tree_digest(text: str, content: bytes) -> str:
    """The checksum of a tree's plain part, the shapes of its tensors and their bytes."""
    header = _header(content)
    header.pop("__metadata__", None)
    body = content[8 + int.from_bytes(content[:8], "little") :]
    return _digest(text.encode() + _canonical(header) + body)


@dataclass
class Checkpoint:
    """A moment of a run.

    Attributes:
        step: When it was.
        state: Tree of dicts, lists, numbers, strings and tensors.
        journals: For data that only grows, all chunks saved so far, oldest first.
    """

    step: int
    state: Any
    journals: dict[str, list[dict[str, torch.Tensor]]] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one folder.

    A checkpoint is a manifest ``<step>.json`` that names safetensors files with their checksums. Files
    are never changed once written, and the manifest comes last, so a checkpoint exists completely or not
    at all. The last two are kept: should the newer be damaged, work continues from the older.
    """

    KEEP = 2

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._journals: dict[str, list[dict[str, Any]]] = {}

    def save(self, step: int, state: Any, journals: Mapping[str, Tensors] | None = None) -> None:
        """Save a moment; ``journals`` holds only what is new since the last save or load."""
        plain, tensors = flatten(state)
        grown = {name: list(files) for name, files in self._journals.items()}
        for name, chunk in (journals or {}).items():
            grown.setdefault(name, []).append(self._write(f"{name}-{step:010d}", chunk))
        content = {
            "format": FORMAT,
            "step": step,
            "state": plain,
            "tensors": self._write(f"state-{step:010d}", tensors),
            "journals": grown,
        }
        write_json(self._manifest(step), {"sha256": _digest(_canonical(content)), "content": content})
        self._journals = grown
        self._prune(step)

    def load(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or ``None`` if there has never been one."""
        problems = []
        for step in reversed(self.steps()):
            try:
                return self._read(step)
            except RunError as error:
                problems.append(str(error))
        if problems:
            reason = problems[0].rstrip(".")
            raise RunError(
                f"No checkpoint in {self.folder} is whole: {reason}; restore it from a copy, or start in "
                "a new folder."
            )
        return None

    def steps(self) -> list[int]:
        """The steps for which there is a manifest, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit())

    def _read(self, step: int) -> Checkpoint:
        path = self._manifest(step)
        manifest = read_json(path)
        content = manifest.get("content") if isinstance(manifest, dict) else None
        if not isinstance(content, dict) or _digest(_canonical(content)) != manifest.get("sha256"):
            raise RunError(f"{path} is damaged: its checksum does not match.")
        if content["format"] != FORMAT:
            raise RunError(f"{path} has format {content['format']}; this version reads format {FORMAT}.")
        state = unflatten(content["state"], self._load(content["tensors"]))
        journals = {
            name: [self._load(entry) for entry in files] for name, files in content["journals"].items()
        }
        self._journals = content["journals"]
        newer = [other for other in self.steps() if other > step]
        if newer:
            log.warning("Checkpoint %d is damaged; continuing from checkpoint %d.", newer[-1], step)
        return Checkpoint(content["step"], state, journals)

    def _write(self, stem: str, tensors: Tensors) -> dict[str, Any]:
        content = save_tensors(tensors)
        digest = _digest(content)
        # The digest in the name keeps a rewritten step from touching the files of the earlier one.
        name = f"{stem}-{digest[:12]}.safetensors"
        write_atomic(self.folder / name, content)
        return {"file": name, "sha256": digest}

    def _load(self, entry: Mapping[str, str]) -> dict[str, torch.Tensor]:
        return _read_checked(self.folder / entry["file"], entry["sha256"])

    def _prune(self, step: int) -> None:
        """Drop manifests older than the kept ones, or newer and so damaged, and files nobody names."""
        steps = [other for other in self.steps() if other <= step]
        for other in self.steps():
            if other not in steps[-self.KEEP :]:
                self._manifest(other).unlink(missing_ok=True)
        named = set()
        for other in steps[-self.KEEP :]:
            content = read_json(self._manifest(other))["content"]
            named.add(content["tensors"]["file"])
            named.update(entry["file"] for files in content["journals"].values() for entry in files)
        for path in self.folder.iterdir():
            if path.suffix == ".part" or (path.suffix == ".safetensors" and path.name not in named):
                path.unlink(missing_ok=True)

    def _manifest(self, step: int) -> Path:
        return self.folder / f"{step:010d}.json"


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sync(path: Path) -> None:
    """Wait until a file, or the list of files in a folder, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(key: Any) -> str:
    if not isinstance(key, str) or key == TENSOR:
        raise TypeError(f"Checkpoint trees have strings as keys, not {key!r}.")
    return key
