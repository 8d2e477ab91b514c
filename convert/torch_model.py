"""A torch module as a flat function: named tensors in, named tensors out, in a fixed order."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import UsageProblem
from ..report import Omission
from ..spec import Signature, TensorSpec
from .base import Array, Arrays
from .torch_arguments import given_by_place, parameters_of
from .torch_decisions import Decisions, decisions_recorder, one_sided
from .torch_modes import float64_mode, index_recorder
from .torch_outputs import name_outputs, why_omitted
from .torch_steps import Operation, operations_recorder
from .torch_suspects import suspects_recorder
from .torch_tensors import dtype_name, some_bytes, to_array, to_tensor

BY_PRECISION = ("bfloat16", "float16", "float32", "float64")

PRELOAD = (
    "torch",
    "torch.export._trace",
    "torch.onnx",
    "onnx",
    "onnxruntime",
    "onnxscript.function_libs.torch_lib.ops",
)
"""What running and exporting a torch model imports sooner or later."""


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
        self._decisions: Decisions = {}
        _check_weights(module)
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
        with decisions_recorder(self._decisions):
            outputs = self._outputs(feeds)
        return {name: to_array(value, f"The output {name!r}") for name, value in outputs.items()}

    def run_double(self, feeds: Arrays) -> dict[str, Array]:
        """Return every output as computed in float64."""
        with float64_mode():
            return self.run(feeds)

    @property
    def one_sided(self) -> dict[str, bool]:
        """The user's lines that look at a value and went one way only so far, and which."""
        return one_sided(self._decisions)

    def forget_decisions(self) -> None:
        """Let `one_sided` tell of what runs from now on."""
        self._decisions.clear()

    def scores(self, feeds: Arrays) -> dict[str, tuple[Array, int]]:
        """Return, for each output of indices, what they were chosen by and along which axis."""
        with index_recorder() as recorder:
            outputs = self._outputs(feeds)
        found = {name: recorder.find(value) for name, value in outputs.items()}
        return {name: (to_array(s[0]), s[1]) for name, s in found.items() if s is not None}

    def suspects(self, feeds: Arrays) -> tuple[str, ...]:
        """Return what draws random numbers or mixes a batch: `kind: operator at file:line`."""
        with suspects_recorder() as found:
            self._outputs(feeds)
        return tuple(found)

    def operations(self, feeds: Arrays) -> list[Operation]:
        """Return every operation that gives floating-point numbers, in order."""
        with operations_recorder() as found:
            self._outputs(feeds)
        return found

    def _outputs(self, feeds: Arrays) -> dict[str, Any]:
        import torch

        # no_grad and not inference_mode: its tensors could not be used by a later export.
        with torch.no_grad():
            values = self.flat(*self.tensors(feeds))
        return dict(zip(self.flat.output_names, values, strict=True))

    @property
    def narrowest(self) -> str:
        """The narrowest floating-point dtype that it computes in."""
        used = {dtype_name(tensor) for tensor in self.flat.state_dict().values()}
        used |= {spec.dtype for spec in self.signature.inputs}
        return next((name for name in BY_PRECISION if name in used), "float32")

    def for_export(self) -> TorchModel:
        """Return the model, as exporters should see it."""
        if self._before_export is not None:
            self._before_export()
        return self

    def widened(self, outputs: tuple[TensorSpec, ...]) -> TorchModel:
        """Return the model computing in float32 between its ends; itself if it has no bfloat16.

        Args:
            outputs: what it gives.
        """
        if self.narrowest != "bfloat16":
            return self
        wide = copy.copy(self)
        wide.flat = widen(self.flat, outputs)
        return wide

    def fingerprint(self) -> str:
        """Return a digest over a part of every parameter and buffer."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.flat.state_dict(keep_vars=True).items()):
            if dtype_name(tensor):  # a module may keep other things there too
                digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
                digest.update(some_bytes(tensor))
        return digest.hexdigest()


def _check_weights(module: Any) -> None:
    import torch

    weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in weights.items():
        if torch.nn.parameter.is_lazy(tensor):
            raise UsageProblem(
                f"The weight {name!r} is not initialised: its layer has seen no input yet.",
                remedy="Call the model once inside the factory, and load its weights.",
            )
        if tensor.is_meta:
            raise UsageProblem(
                f"The weight {name!r} is on the meta device: it has a shape and no values.",
                remedy="Load the weights inside the factory, after to_empty(device='cpu').",
            )


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

    by_place = given_by_place(parameters_of(module), (*input_names, *constants))

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.input_names = tuple(input_names)
            self.output_names: tuple[str, ...] = ()
            self.omitted: dict[str, str] = {}

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            given = {**dict(zip(self.input_names, inputs, strict=True)), **constants}
            placed = [given.pop(name) for name in by_place]
            result = self.module(*placed, **given)
            names, values, omitted = [], list(inputs), {}
            for name, leaf in name_outputs(result, self.input_names):
                if isinstance(leaf, torch.Tensor):
                    # An output of its own, where the module returns an input or repeats itself.
                    repeated = any(leaf is value for value in values)
                    names.append(name)
                    values.append(leaf.clone() if repeated else leaf)
                else:
                    omitted[name] = why_omitted(leaf)
            self.output_names, self.omitted = tuple(names), omitted
            return tuple(values[len(inputs) :])

    flat = Flat()
    flat.eval()
    for parameter in flat.parameters():
        parameter.requires_grad_(False)
    return flat


def widen(flat: Any, outputs: tuple[TensorSpec, ...]) -> Any:
    """Return a copy of `flat` that computes in float32 and gives `outputs`."""
    import torch

    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = copy.deepcopy(flat).float()
            self.input_names = flat.input_names

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            values = self.flat(*(x.float() if x.dtype == torch.bfloat16 else x for x in inputs))
            return tuple(
                value.to(getattr(torch, spec.dtype))
                for value, spec in zip(values, outputs, strict=True)
            )

    return Wide().eval()
