"""Which inputs one forward pass of a transformers model calls for, from its config and signature.

What is decided here rests on the names that transformers itself gives to inputs and to config
entries, not on a list of architectures.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import msgspec

from ..errors import UsageProblem
from ..spec import BATCH, Axis, Dim, Domain, Signature, TensorSpec

LONGEST = 128
"""Tokens a sequence is tried up to, where the model allows as many and `--input` states nothing."""
LONGEST_SOUND = 16000
"""Samples a waveform is tried up to: a second at the usual rate."""
DEFAULT_IMAGE = 224


class Described(msgspec.Struct, frozen=True):
    """What a model takes: its inputs, their domains, and the arguments of its forward."""

    signature: Signature
    domains: dict[str, Domain]
    parameters: tuple[str, ...]

    def with_domains(self, signature: Signature) -> Signature:
        """Return `signature` with what is known of each input's values."""
        return Signature(
            tuple(
                msgspec.structs.replace(spec, domain=self.domains.get(spec.name, spec.domain))
                for spec in signature.inputs
            )
        )


class _Facts(NamedTuple):
    """A model, its config, and the part of the config that is about text."""

    module: Any
    config: Any
    text: Any


def describe_inputs(module: Any, config: Any) -> Described:
    """Return the inputs of a model.

    Raises:
        UsageProblem: it takes something that can't be made from its config.
    """
    parameters = tuple(inspect.signature(module.forward).parameters)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    facts = _Facts(module, config, text)
    specs: list[TensorSpec] = []
    for name in parameters:
        if name in _MAKERS:
            spec = _MAKERS[name](facts)
            specs += [msgspec.structs.replace(spec, name=name)] if spec is not None else []
    if not specs:
        raise UsageProblem(
            f"It is not known what {type(module).__name__} takes; "
            f"its main input is called {module.main_input_name!r}.",
            remedy="State each input: --input 'name:dtype[batch,…]'.",
        )
    domains = {spec.name: spec.domain for spec in specs if spec.domain is not None}
    return Described(Signature(tuple(specs)), domains, parameters)


def _has_text(module: Any) -> bool:
    names = inspect.signature(module.forward).parameters
    return "input_ids" in names and (
        module.main_input_name == "input_ids" or "pixel_values" in names
    )


def _ids(vocabulary: int, axis: str, longest: int) -> TensorSpec:
    shape = (Axis(BATCH), Axis(axis, 1, longest))
    return TensorSpec("", "int64", shape, Domain("integer", 0, max(0, vocabulary - 1)))


def _longest(text: Any, *, decoder: bool = False) -> int:
    """Return how many tokens to try: no more than the model has positions for."""
    names = ["max_target_positions"] if decoder else ["max_source_positions"]
    names += ["max_position_embeddings", "n_positions"]
    limits = [value for name in names if isinstance(value := getattr(text, name, None), int)]
    limit = min((value for value in limits if value > 0), default=LONGEST)
    # Some count positions from behind the padding id, which takes as many from the table.
    reserved = (getattr(text, "pad_token_id", None) or 0) + 1
    return min(LONGEST, limit - reserved if limit - reserved >= 1 else limit)


def _input_ids(facts: _Facts) -> TensorSpec | None:
    return (
        _ids(facts.text.vocab_size, "sequence", _longest(facts.text))
        if _has_text(facts.module)
        else None
    )


def _attention_mask(facts: _Facts) -> TensorSpec | None:
    ids = _input_ids(facts)
    return None if ids is None else _mask_of(ids)


def _mask_of(ids: TensorSpec) -> TensorSpec:
    return msgspec.structs.replace(ids, domain=Domain("mask", 0, 1))


def _token_type_ids(facts: _Facts) -> TensorSpec | None:
    ids = _input_ids(facts)
    kinds = getattr(facts.text, "type_vocab_size", 0)
    if ids is None or not kinds:
        return None
    return msgspec.structs.replace(ids, domain=Domain("integer", 0, kinds - 1))


def _decoder_input_ids(facts: _Facts) -> TensorSpec | None:
    if not getattr(facts.config, "is_encoder_decoder", False):
        return None
    vocabulary = getattr(facts.text, "decoder_vocab_size", None) or facts.text.vocab_size
    return _ids(vocabulary, "decoder_sequence", _longest(facts.text, decoder=True))


def _decoder_attention_mask(facts: _Facts) -> TensorSpec | None:
    # Given always: without it transformers looks for packed sequences, which traces wrongly.
    ids = _decoder_input_ids(facts)
    return None if ids is None else _mask_of(ids)


def _pixel_values(facts: _Facts) -> TensorSpec | None:
    vision = getattr(facts.config, "vision_config", facts.config)
    size = getattr(vision, "image_size", None) or DEFAULT_IMAGE
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    channels: Dim = getattr(vision, "num_channels", 3)
    return TensorSpec("", "float32", (Axis(BATCH), channels, height, width))


def _input_values(facts: _Facts) -> TensorSpec | None:
    """A waveform; it must be long enough for two frames of the convolutions that read it."""
    kernels, strides = (
        getattr(facts.config, "conv_kernel", ()),
        getattr(facts.config, "conv_stride", ()),
    )
    field = 1
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        field = (field - 1) * stride + kernel
    shortest = max(1, field + math.prod(strides))
    longest = max(LONGEST_SOUND, 2 * shortest)
    return TensorSpec("", "float32", (Axis(BATCH), Axis("samples", shortest, longest)))


def _input_features(facts: _Facts) -> TensorSpec | None:
    """A spectrogram of the one length that the encoder's positions fit."""
    bins, positions = (
        getattr(facts.config, "num_mel_bins", None),
        getattr(facts.config, "max_source_positions", None),
    )
    if bins is None or positions is None:
        return None
    return TensorSpec("", "float32", (Axis(BATCH), bins, 2 * positions))


_MAKERS = {
    "input_ids": _input_ids,
    "attention_mask": _attention_mask,
    "token_type_ids": _token_type_ids,
    "pixel_values": _pixel_values,
    "input_values": _input_values,
    "input_features": _input_features,
    "decoder_input_ids": _decoder_input_ids,
    "decoder_attention_mask": _decoder_attention_mask,
}
