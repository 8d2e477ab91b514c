"""A torch module as a flat function: named tensors in, named tensors out, in a fixed order."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import TconvError, UsageProblem
from ..report import Omission
from ..spec import Signature
from .base import Array, Arrays
from .torch_modes import float64_mode, index_recorder

FINGERPRINT_VALUES = 4096
"""How many values of each tensor go into the fingerprint."""


class TorchModel:
    """A `SourceModel` of torch: `module` with the arguments that are not inputs held fixed."""

    framework = "torch"

    def __init__(
        self,
        module: Any,
        signature: Signature,
        *,
        examples: Arrays,
        batch_declared: bool,
        constants: Mapping[str, Any] | None = None,
        frozen: Mapping[str, str] | None = None,
        device: str = "auto",
        before_export: Callable[[], object] | None = None,
    ) -> None:
        self.signature = signature
        self.examples = examples
        self.batch_declared = batch_declared
        self.frozen = dict(frozen or {})
        self.padding: int | None = None
        self.device = choose_device(device)
        self._before_export = before_export
        self.flat = flatten(module.eval().to(self.device), signature.input_names, constants or {})

    @property
    def omitted(self) -> tuple[Omission, ...]:
        """What the outputs hold beside tensors."""
        return tuple(Omission(name, why) for name, why in self.flat.omitted.items())

    def tensors(self, feeds: Arrays) -> tuple[Any, ...]:
        """Return the inputs as torch tensors, in the signature's order."""
        return tuple(to_tensor(feeds[name], self.device) for name in self.signature.input_names)

    def run(self, feeds: Arrays) -> dict[str, Array]:
        """Return every output, by name, in the module's own precision."""
        return {name: to_array(value) for name, value in self._outputs(feeds).items()}

    def run_double(self, feeds: Arrays) -> dict[str, Array]:
        """Return every output as computed in float64."""
        with float64_mode():
            return self.run(feeds)

    def scores(self, feeds: Arrays) -> dict[str, tuple[Array, int]]:
        """Return, for each output of indices, what they were chosen by and along which axis."""
        with index_recorder() as recorder:
            outputs = self._outputs(feeds)
        found = {name: recorder.find(value) for name, value in outputs.items()}
        return {name: (to_array(s[0]), s[1]) for name, s in found.items() if s is not None}

    def _outputs(self, feeds: Arrays) -> dict[str, Any]:
        import torch

        # no_grad and not inference_mode: its tensors could not be used by a later export.
        with torch.no_grad():
            values = self.flat(*self.tensors(feeds))
        return dict(zip(self.flat.output_names, values, strict=True))

    def for_export(self) -> TorchModel:
        """Return the model as exporters should see it, itself unless it computes in bfloat16."""
        if self._before_export is not None:
            self._before_export()
        if not any(spec.dtype == "bfloat16" for spec in self.signature.inputs):
            return self
        wide = copy.copy(self)
        wide.flat = widen(self.flat)
        return wide

    def fingerprint(self) -> str:
        """Return a digest over a part of every parameter and buffer."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.flat.state_dict(keep_vars=True).items()):
            values = tensor.detach().reshape(-1)
            step = max(1, len(values) // FINGERPRINT_VALUES)
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(to_array(values[::step].contiguous()).tobytes())
        return digest.hexdigest()


def choose_device(device: str) -> str:
    """Return where to run, and let float32 be float32 there: TF32 has a mantissa of 10 bits."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def flatten(module: Any, input_names: Sequence[str], constants: Mapping[str, Any]) -> Any:
    """Return a module that takes the inputs by position and returns a tuple of tensors.

    Its `output_names` and `omitted` are known after the first call.
    """
    import torch

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.input_names = tuple(input_names)
            self.output_names: tuple[str, ...] = ()
            self.omitted: dict[str, str] = {}

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            result = self.module(**dict(zip(self.input_names, inputs, strict=True)), **constants)
            names, values, omitted = [], list(inputs), {}
            for name, leaf in walk_outputs(result):
                if isinstance(leaf, torch.Tensor):
                    # An output of its own, where the module returns an input or repeats itself.
                    repeated = any(leaf is value for value in values)
                    names.append(name)
                    values.append(leaf.clone() if repeated else leaf)
                else:
                    omitted[name] = _why_omitted(leaf)
            self.output_names, self.omitted = tuple(names), omitted
            return tuple(values[len(inputs) :])

    flat = Flat()
    flat.eval()
    for parameter in flat.parameters():
        parameter.requires_grad_(False)
    return flat


def widen(flat: Any) -> Any:
    """Return a copy of `flat` that takes and gives bfloat16, but computes in float32."""
    import torch

    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = copy.deepcopy(flat).float()

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            wide = [x.float() if x.dtype == torch.bfloat16 else x for x in inputs]
            return tuple(
                y.to(torch.bfloat16) if y.dtype == torch.float32 else y for y in self.flat(*wide)
            )

    return Wide().eval()


def walk_outputs(result: Any) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of what a module returned, named by its key path.

    A single tensor is `output`, a tuple's items are `output_0` …; deeper keys are joined by `_`.

    Raises:
        UsageProblem: two leaves have one name, or there is no tensor at all.
    """
    leaves = list(_walk(result, ()))
    names = ["_".join(path) if path else "output" for path, _ in leaves]
    if isinstance(result, tuple | list) and not hasattr(result, "_fields"):
        names = [f"output_{name}" for name in names]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise UsageProblem(
            f"Several outputs would be called {sorted(repeated)}.",
            remedy="Rename the keys so that joining them with '_' gives different names.",
        )
    if not any(hasattr(leaf, "shape") for _, leaf in leaves):
        raise UsageProblem(
            f"The model returns no tensor but {type(result).__name__}.",
            remedy="Return a tensor, or a tuple, list, dict or dataclass of tensors.",
        )
    yield from zip(names, (leaf for _, leaf in leaves), strict=True)


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif hasattr(value, "_fields"):
        items = [(name, getattr(value, name)) for name in value._fields]
    elif isinstance(value, tuple | list):
        items = [(str(position), item) for position, item in enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        yield path, value
        return
    for key, item in items:
        yield from _walk(item, (*path, key))


def _why_omitted(leaf: Any) -> str:
    return "it is None" if leaf is None else f"it is no tensor but {type(leaf).__name__}"


def to_tensor(array: Array, device: str = "cpu") -> Any:
    """Return a torch tensor with the array's values; it never shares memory with it."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(array.view(np.int16))).view(torch.bfloat16).to(device)
    return torch.from_numpy(np.array(array)).to(device)


def to_array(tensor: Any) -> Array:
    """Return a NumPy array with the tensor's values.

    Raises:
        TconvError: the tensor is sparse, complex or quantised.
    """
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        array: Array = tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    if tensor.is_sparse or tensor.is_quantized or tensor.is_complex():
        raise TconvError(
            f"An output is a {tensor.layout} tensor of {tensor.dtype}, which no target can hold.",
            remedy="Return dense, real tensors.",
        )
    return tensor.numpy()  # type: ignore[no-any-return]
