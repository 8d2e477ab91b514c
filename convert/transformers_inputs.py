"""Which inputs one forward pass of a transformers model calls for, and of which sizes and values.

What is decided here rests on the names that transformers itself gives to inputs, to config entries
and to the entries of a checkpoint's other files, not on a list of architectures.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ..errors import UsageProblem
from ..spec import BATCH, Axis, Dim, Domain, Signature, TensorSpec
from .transformers_files import Hints

LONGEST = 128
"""Tokens a sequence is tried up to, where the model allows as many and `--input` states nothing."""
LONGEST_SOUND = 16000
"""Samples a waveform is tried up to: a second at the usual rate."""
DEFAULT_IMAGE = 224
MOST_CHOICES = 4

POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
ENCODER_POSITIONS = ("max_source_positions", "max_encoder_position_embeddings")
DECODER_POSITIONS = ("max_target_positions", "max_decoder_position_embeddings")


class Described(msgspec.Struct, frozen=True):
    """What a model takes: the inputs that are known, and the arguments of its forward."""

    model: str
    main_input: str
    inputs: tuple[TensorSpec, ...]
    parameters: tuple[str, ...]

    def complete(self) -> Signature:
        """Return all inputs.

        Raises:
            UsageProblem: the main one can't be made from the config.
        """
        if self.main_input not in {spec.name for spec in self.inputs}:
            raise UsageProblem(
                f"It is not known how to make {self.main_input!r}, the main input of {self.model}.",
                remedy="State each input: --input 'name:dtype[batch,…]'.",
            )
        return Signature(self.inputs)

    def with_domains(self, signature: Signature) -> Signature:
        """Return `signature` with what is known of each input's values."""
        domains = {spec.name: spec.domain for spec in self.inputs}
        return Signature(
            tuple(
                msgspec.structs.replace(spec, domain=domains.get(spec.name, spec.domain))
                for spec in signature.inputs
            )
        )


class _Facts(NamedTuple):
    """A model, its config, the part of the config that is about text, and the other files."""

    module: Any
    config: Any
    text: Any
    hints: Hints


def describe_inputs(module: Any, config: Any, hints: Hints | None = None) -> Described:
    """Return the inputs of a model, as its config and what lies beside that tell them."""
    parameters = tuple(inspect.signature(module.forward).parameters)
    facts = _Facts(module, config, _text_config(config), hints or Hints())
    specs: list[TensorSpec] = []
    for name in parameters:
        spec = _MAKERS[name](facts) if name in _MAKERS else None
        specs += [msgspec.structs.replace(spec, name=name)] if spec is not None else []
    return Described(type(module).__name__, _main_input(facts), tuple(specs), parameters)


def find_padding(config: Any) -> int | None:
    """Return the token id that fills a sequence up, where there is one."""
    found = getattr(_text_config(config), "pad_token_id", None)
    return found if isinstance(found, int) else None


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _main_input(facts: _Facts) -> str:
    return str(getattr(facts.module, "main_input_name", "input_ids"))


def _ids(facts: _Facts, vocabulary: int, axis: str, positions: tuple[str, ...]) -> TensorSpec:
    longest = Axis(axis, 1, _longest(facts, positions))
    shape: tuple[Dim, ...] = (Axis(BATCH), longest)
    if _chooses(facts.module):
        shape = (Axis(BATCH), Axis("choices", 2, MOST_CHOICES), longest)
    return TensorSpec("", "int64", shape, Domain("integer", 0, max(0, vocabulary - 1)))


def _chooses(module: Any) -> bool:
    """Whether each row holds several texts to choose from."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES

    return type(module).__name__ in MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES.values()


def _repeats_text(module: Any) -> bool:
    """Whether a decoder reads the encoder's own text again, which the model sees to itself."""
    from transformers.models.auto import modeling_auto as names

    heads = (
        *names.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.values(),
        *names.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES.values(),
    )
    return type(module).__name__ in heads


def _longest(facts: _Facts, names: tuple[str, ...]) -> int:
    """Return how many tokens to try: no more than the model has positions for."""
    stated = [getattr(facts.text, name, None) for name in (*names, *POSITIONS)]
    limits = [value for value in stated if isinstance(value, int) and value > 0]
    limit = min(limits, default=LONGEST) - _reserved_positions(facts.module)
    return max(1, min(LONGEST, limit, facts.hints.longest or LONGEST))


def _reserved_positions(module: Any) -> int:
    """Return how many positions no token has: some models count from behind the padding id."""
    for name, part in module.named_modules():
        padding = getattr(part, "padding_idx", None)
        if "position" in name.rpartition(".")[2] and isinstance(padding, int):
            return padding + 1
    return 0


def _input_ids(facts: _Facts) -> TensorSpec | None:
    if _main_input(facts) not in ("input_ids", "pixel_values") or facts.text is None:
        return None
    vocabulary = getattr(facts.text, "vocab_size", None)
    if vocabulary is None:
        return None
    ids = _ids(facts, vocabulary, "sequence", ENCODER_POSITIONS)
    end = getattr(facts.text, "eos_token_id", None)
    if not (_reads_whole_texts(facts) and isinstance(end, int) and 0 <= end < vocabulary):
        return ids
    domain = Domain("integer", 0, max(0, vocabulary - 1), end)
    return msgspec.structs.replace(ids, domain=domain)


def _reads_whole_texts(facts: _Facts) -> bool:
    """Whether texts have an end: some heads take what is computed there for the whole."""
    pairs = "pixel_values" in inspect.signature(facts.module.forward).parameters
    return pairs or bool(getattr(facts.config, "is_encoder_decoder", False))


def _attention_mask(facts: _Facts) -> TensorSpec | None:
    main = _main_input(facts)
    if main == "input_values":
        return _sound_mask(facts)
    if main == "input_features":
        series = _input_features(facts)
        return None if series is None or not isinstance(series.shape[1], Axis) else _mask_of(series)
    ids = _input_ids(facts)
    return None if ids is None else _mask_of(ids)


def _mask_of(ids: TensorSpec) -> TensorSpec:
    """Return the mask of a text of ids, or of a series of features."""
    axes = ids.shape if ids.dtype == "int64" else ids.shape[:2]
    return TensorSpec("", "int64", axes, Domain("mask", 1, 1))


def _token_type_ids(facts: _Facts) -> TensorSpec | None:
    ids = _input_ids(facts)
    kinds = getattr(facts.text, "type_vocab_size", None) or 0
    # With a single kind there is nothing to say; and a tokenizer may give none.
    if ids is None or kinds < 2 or not facts.hints.gives("token_type_ids"):  # noqa: PLR2004
        return None
    return msgspec.structs.replace(ids, domain=Domain("integer", 0, kinds - 1))


def _decoder_input_ids(facts: _Facts) -> TensorSpec | None:
    if not getattr(facts.config, "is_encoder_decoder", False) or _repeats_text(facts.module):
        return None
    vocabulary = getattr(facts.text, "decoder_vocab_size", None) or facts.text.vocab_size
    return _ids(facts, vocabulary, "decoder_sequence", DECODER_POSITIONS)


def _decoder_attention_mask(facts: _Facts) -> TensorSpec | None:
    # Given always: without it transformers looks for packed sequences, which traces wrongly.
    ids = _decoder_input_ids(facts)
    return None if ids is None else _mask_of(ids)


def _pixel_values(facts: _Facts) -> TensorSpec:
    vision = getattr(facts.config, "vision_config", facts.config)
    size = getattr(vision, "image_size", None) or facts.hints.image or DEFAULT_IMAGE
    frames = getattr(vision, "num_frames", None)
    channels = getattr(vision, "num_channels", 3)
    shape = (Axis(BATCH), *([frames] if frames else []), channels, *_height_and_width(size))
    return TensorSpec("", "float32", shape)


def _height_and_width(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _input_values(facts: _Facts) -> TensorSpec:
    """A waveform, or a spectrogram of one length where the config states that."""
    length, bins = (getattr(facts.config, name, None) for name in ("max_length", "num_mel_bins"))
    if length and bins:
        return TensorSpec("", "float32", (Axis(BATCH), length, bins))
    _, shortest = _frame_samples(facts.config)
    longest = max(LONGEST_SOUND, 2 * shortest)
    return TensorSpec("", "float32", (Axis(BATCH), Axis("samples", shortest, longest)))


def _sound_mask(facts: _Facts) -> TensorSpec | None:
    """A mask over a waveform; models that normalise over all of a sound are fed without one."""
    stated = facts.hints.gives_mask
    if not (
        getattr(facts.config, "feat_extract_norm", "") == "layer" if stated is None else stated
    ):
        return None
    sound = _input_values(facts)
    if not any(axis.name == "samples" for axis in sound.axes):
        return None
    field, _ = _frame_samples(facts.config)
    return TensorSpec("", "int64", sound.shape, Domain("mask", field, 1))


def _frame_samples(config: Any) -> tuple[int, int]:
    """Return how many samples the convolutions that read a waveform need for one frame, and two."""
    kernels, strides = getattr(config, "conv_kernel", ()), getattr(config, "conv_stride", ())
    field = 1
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        field = (field - 1) * stride + kernel
    return field, max(1, field + math.prod(strides))


def _input_features(facts: _Facts) -> TensorSpec | None:
    """A spectrogram: of the one length that the encoder's positions fit, or of any."""
    config = facts.config
    series = getattr(config, "input_feat_per_channel", None)
    if series:
        limit = min(LONGEST, getattr(config, "max_source_positions", LONGEST))
        bins = series * getattr(config, "input_channels", 1)
        return TensorSpec("", "float32", (Axis(BATCH), Axis("frames", 1, limit), bins))
    bins = getattr(config, "num_mel_bins", None)
    positions = getattr(config, "max_source_positions", None)
    if not bins or not positions:
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
