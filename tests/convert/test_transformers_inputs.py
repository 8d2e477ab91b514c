"""The inputs that are asked of a model, told from its config and the files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tconv.convert.transformers_files import Hints, read_hints
from tconv.convert.transformers_inputs import Described, describe_inputs, find_padding
from tconv.errors import UsageProblem

pytest.importorskip("transformers")

TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
}
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": [16, 24],
    "patch_size": 8,
}
PAIR = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "pad_token_id": 1,
}
SOUND = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "conv_dim": [16, 16],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embedding_groups": 2,
}


def describe(model_type: str, auto: str, hints: Hints | None = None, **config: Any) -> Described:
    """Return what is known of a model that holds no weights."""
    import torch
    import transformers

    chosen = transformers.AutoConfig.for_model(model_type, **config)
    with torch.device("meta"):
        module = getattr(transformers, auto).from_config(chosen)
    return describe_inputs(module, chosen, hints)


def texts(described: Described) -> list[str]:
    return [str(spec) for spec in described.complete().inputs]


@pytest.mark.parametrize(
    ("model_type", "auto", "config", "expected"),
    [
        pytest.param(
            "bert",
            "AutoModel",
            {**TEXT, "type_vocab_size": 2},
            ["input_ids", "attention_mask", "token_type_ids"],
            id="two kinds of token",
        ),
        pytest.param(
            "roberta",
            "AutoModel",
            {**TEXT, "type_vocab_size": 1},
            ["input_ids", "attention_mask"],
            id="a single kind of token",
        ),
        pytest.param(
            "bart",
            "AutoModel",
            PAIR,
            ["input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"],
            id="an encoder and a decoder",
        ),
        pytest.param(
            "bart",
            "AutoModelForSequenceClassification",
            PAIR,
            ["input_ids", "attention_mask"],
            id="a decoder that reads the same text",
        ),
        pytest.param("vit", "AutoModel", IMAGE, ["pixel_values"], id="an image"),
        pytest.param(
            "clip",
            "AutoModel",
            {"text_config": TEXT, "vision_config": {**IMAGE, "image_size": 16}},
            ["input_ids", "pixel_values", "attention_mask"],
            id="a text and an image",
        ),
        pytest.param(
            "whisper",
            "AutoModel",
            {**PAIR, "num_mel_bins": 8, "max_source_positions": 30},
            ["input_features", "decoder_input_ids", "decoder_attention_mask"],
            id="a spectrogram and a text",
        ),
        pytest.param("wav2vec2", "AutoModel", SOUND, ["input_values"], id="a normalised sound"),
        pytest.param(
            "wav2vec2",
            "AutoModel",
            {**SOUND, "feat_extract_norm": "layer"},
            ["input_values", "attention_mask"],
            id="a sound of several lengths",
        ),
    ],
)
def test_inputs_by_name(
    model_type: str, auto: str, config: dict[str, Any], expected: list[str]
) -> None:
    names = describe(model_type, auto, **config).complete().input_names
    assert list(names) == expected


@pytest.mark.parametrize(
    ("model_type", "auto", "config", "first"),
    [
        pytest.param(
            "bert",
            "AutoModel",
            TEXT,
            "input_ids:int64[batch,sequence=1..40]",
            id="as many tokens as positions",
        ),
        pytest.param(
            "roberta",
            "AutoModel",
            {**TEXT, "pad_token_id": 3},
            "input_ids:int64[batch,sequence=1..36]",
            id="positions behind the padding id",
        ),
        pytest.param(
            "t5",
            "AutoModel",
            {"d_model": 8, "d_kv": 2, "d_ff": 8, "num_layers": 1, "num_heads": 4},
            "input_ids:int64[batch,sequence=1..128]",
            id="no limit",
        ),
        pytest.param(
            "bert",
            "AutoModelForMultipleChoice",
            TEXT,
            "input_ids:int64[batch,choices=2..4,sequence=1..40]",
            id="several texts a row",
        ),
        pytest.param(
            "vit", "AutoModel", IMAGE, "pixel_values:float32[batch,3,16,24]", id="size of an image"
        ),
        pytest.param(
            "wav2vec2",
            "AutoModel",
            SOUND,
            "input_values:float32[batch,samples=30..16000]",
            id="two frames of sound",
        ),
        pytest.param(
            "whisper",
            "AutoModel",
            {**PAIR, "num_mel_bins": 8, "max_source_positions": 30},
            "input_features:float32[batch,8,60]",
            id="size of a spectrogram",
        ),
        pytest.param(
            "speech_to_text",
            "AutoModel",
            {**PAIR, "input_feat_per_channel": 8, "max_source_positions": 50, "conv_channels": 8},
            "input_features:float32[batch,frames=1..50,8]",
            id="a series of features",
        ),
        pytest.param(
            "audio-spectrogram-transformer",
            "AutoModel",
            {**IMAGE, "max_length": 24, "num_mel_bins": 16, "patch_size": 4},
            "input_values:float32[batch,24,16]",
            id="a spectrogram among images",
        ),
    ],
)
def test_sizes(model_type: str, auto: str, config: dict[str, Any], first: str) -> None:
    assert texts(describe(model_type, auto, **config))[0] == first


def test_ids_stay_below_the_vocabulary_and_a_sound_is_never_all_padding() -> None:
    ids, mask, kinds = describe("bert", "AutoModel", **TEXT).complete().inputs
    assert ids.domain is not None
    assert kinds.domain is not None
    assert mask.domain is not None
    assert (ids.domain.high, kinds.domain.high, mask.domain.kind) == (98, 1, "mask")
    sound = describe("wav2vec2", "AutoModel", **SOUND, feat_extract_norm="layer").complete()
    assert sound.inputs[1].domain is not None
    assert sound.inputs[1].domain.low == 20  # (3 - 1) * 5 + 10: what one frame needs


@pytest.mark.parametrize(
    ("model_type", "config", "end"),
    [
        pytest.param("bart", {**PAIR, "eos_token_id": 2}, 2, id="read as a whole"),
        pytest.param("bart", {**PAIR, "eos_token_id": 99}, None, id="out of the vocabulary"),
        pytest.param("gpt2", {"vocab_size": 99, "eos_token_id": 98}, None, id="still written"),
    ],
)
def test_texts_have_an_end(model_type: str, config: dict[str, Any], end: int | None) -> None:
    domain = describe(model_type, "AutoModel", **config).complete().inputs[0].domain
    assert domain is not None
    assert domain.end == end


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        pytest.param(Hints(names=("input_ids", "attention_mask")), 2, id="none made"),
        pytest.param(Hints(names=("input_ids", "token_type_ids")), 3, id="made"),
        pytest.param(Hints(), 3, id="nothing said"),
    ],
)
def test_kinds_of_tokens_are_asked_for_where_the_tokenizer_makes_them(
    hints: Hints, expected: int
) -> None:
    assert len(describe("bert", "AutoModel", hints, **TEXT).inputs) == expected


def test_the_tokenizer_shortens_texts_and_the_processor_sizes_images() -> None:
    described = describe("bert", "AutoModel", Hints(longest=12), **TEXT)
    assert texts(described)[0] == "input_ids:int64[batch,sequence=1..12]"
    resnet = {"embedding_size": 8, "hidden_sizes": [8], "depths": [1]}
    described = describe("resnet", "AutoModel", Hints(image=(32, 48)), **resnet)
    assert texts(described) == ["pixel_values:float32[batch,3,32,48]"]


def test_a_main_input_that_no_config_tells_is_asked_of_the_user() -> None:
    described = describe("bert", "AutoModel", **TEXT)
    other = Described("Odd", "inputs", described.inputs, described.parameters)
    with pytest.raises(UsageProblem, match="how to make 'inputs', the main input of Odd"):
        other.complete()


@pytest.mark.parametrize(
    ("model_type", "config", "expected"),
    [
        pytest.param("roberta", {**TEXT, "pad_token_id": 1}, 1, id="stated"),
        pytest.param("gpt2", {"vocab_size": 99}, None, id="none"),
        pytest.param("clip", {"text_config": {"pad_token_id": 7}}, 7, id="of the text's part"),
    ],
)
def test_padding(model_type: str, config: dict[str, Any], expected: int | None) -> None:
    import transformers

    assert find_padding(transformers.AutoConfig.for_model(model_type, **config)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, Hints(), id="no files"),
        pytest.param(
            {"tokenizer_config.json": {"model_input_names": ["input_ids"], "model_max_length": 77}},
            Hints(names=("input_ids",), longest=77),
            id="a tokenizer",
        ),
        pytest.param(
            {"tokenizer_config.json": {"model_max_length": int(1e30)}}, Hints(), id="no limit"
        ),
        pytest.param(
            {"preprocessor_config.json": {"size": {"height": 32, "width": 48}}},
            Hints(image=(32, 48)),
            id="resized",
        ),
        pytest.param(
            {"preprocessor_config.json": {"size": {"shortest_edge": 256}, "crop_size": 224}},
            Hints(image=(224, 224)),
            id="resized and cropped",
        ),
        pytest.param(
            {"preprocessor_config.json": {"size": 8, "crop_size": 4, "do_center_crop": False}},
            Hints(image=(8, 8)),
            id="not cropped",
        ),
        pytest.param(
            {"processor_config.json": {"feature_extractor": {"return_attention_mask": True}}},
            Hints(gives_mask=True),
            id="a processor of parts",
        ),
        pytest.param({"tokenizer_config.json": ["odd"]}, Hints(), id="of another kind"),
    ],
)
def test_files_beside_the_config(tmp_path: Path, files: dict[str, Any], expected: Hints) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert read_hints(str(tmp_path), local_only=True) == expected


def test_a_broken_file_beside_the_config_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{")
    assert read_hints(str(tmp_path), local_only=True) == Hints()
