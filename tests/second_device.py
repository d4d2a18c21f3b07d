"""A second device in pure Python, so that machines without a GPU can tell what would fail on one.

Its tensors hold what they compute with on the CPU, and refuse what those of a GPU refuse: to be combined with
tensors of another device (but for single numbers and indices), to be read through NumPy, and to be filled by
the generator of another device. The arithmetic being the CPU's, results have the same bits as there. Torch's
fake tensors have no content that code could ask for, and no backward pass where torch was built without CUDA.
"""

from collections import Counter
from typing import ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "second"
aten = torch.ops.aten
_COPYING = {aten._to_copy.default, aten.copy_.default}
_INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
_STRICT = {aten._fused_adam_.default}
_PlainGenerator = torch.Generator


def set_up():
    """The device, once per process; ``None`` where this version of torch cannot have one."""
    try:
        return torch.device(NAME, 0)
    except RuntimeError:
        pass
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    except ImportError:
        return None
    _setup_privateuseone_for_python_backend(NAME)
    return torch.device(NAME, 0)


class There(torch.Tensor):
    """A tensor on the second device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, content):
        there = torch.Tensor._make_wrapper_subclass(
            cls,
            content.shape,
            strides=content.stride(),
            storage_offset=content.storage_offset(),
            dtype=content.dtype,
            device=torch.device(NAME, 0),
        )
        there.content = content
        return there

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), named=None):
        return _perform(operation, arguments, named or {}, Counter())

    def tolist(self):
        return self.cpu().tolist()

    def __repr__(self):
        return f"There({self.content})"


class Generator(_PlainGenerator):
    """A generator of the second device if it is asked for one there.

    Operations are handed another object for the same generator; all of the device are remembered by it.
    """

    made: ClassVar[dict[int, "Generator"]] = {}

    def __new__(cls, device="cpu"):
        if torch.device(device).type == "cpu":
            return _PlainGenerator()
        return super().__new__(cls)

    def __init__(self, device="cpu"):
        super().__init__()
        self.made[self._cdata] = self

    @property
    def device(self):
        return torch.device(NAME, 0)


class SecondDevice(TorchDispatchMode):
    """While it is entered there is a second device; counts what is computed there and what is fetched."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __enter__(self):
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) then moves what it has made
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(False)
        return super().__exit__(*error)

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        return _perform(operation, arguments, named or {}, self.counts)


def _perform(operation, arguments, named, counts):
    """An operation on the CPU, as the device would do it."""
    leaves = [*_leaves(arguments), *_leaves(named.values())]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, There)]
    on_second = bool(there)
    if operation is aten.copy_.default:
        on_second = isinstance(arguments[0], There)
    elif named.get("device") is not None:
        on_second = torch.device(named["device"]).type == NAME
    if there and operation not in _COPYING:
        _require_one_device(operation, arguments, tensors)
    for leaf in leaves:
        if isinstance(leaf, _PlainGenerator) and (leaf._cdata in Generator.made) != on_second:
            raise RuntimeError(f"{operation} got a generator of another device.")
    counts["there" if on_second else "here"] += 1
    counts["fetched"] += bool(there) and (not on_second or operation is aten._local_scalar_dense.default)
    if "device" in named:
        named = named | {"device": torch.device("cpu")}
    if there:
        arguments, named = _changed(arguments, There, _content), _changed(named, There, _content)
    result = operation(*arguments, **named)
    if not on_second:
        return result
    known = {id(tensor.content): tensor for tensor in there}  # what is changed in place stays itself
    return _changed(
        result, torch.Tensor, lambda tensor: known[id(tensor)] if id(tensor) in known else There(tensor)
    )


def _require_one_device(operation, arguments, tensors):
    if operation in _INDEXING and isinstance(arguments[0], There):
        tensors = [tensor for tensor in tensors if all(tensor is not index for index in arguments[1])]
    strangers = [tensor for tensor in tensors if not isinstance(tensor, There)]
    if any(stranger.ndim or operation in _STRICT for stranger in strangers):
        raise RuntimeError(f"{operation} got tensors of two devices.")


def _content(there):
    return there.content


def _leaves(nodes):
    """What is in nested lists and tuples."""
    for node in nodes:
        if isinstance(node, list | tuple):
            yield from _leaves(node)
        else:
            yield node


def _changed(node, kind, change):
    """Nested lists, tuples and dictionaries in which everything of a kind is changed."""
    if isinstance(node, kind):
        return change(node)
    if isinstance(node, list | tuple):
        return type(node)(_changed(each, kind, change) for each in node)
    if isinstance(node, dict):
        return {key: _changed(each, kind, change) for key, each in node.items()}
    return node
