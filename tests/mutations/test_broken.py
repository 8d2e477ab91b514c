"""No mistake goes unnoticed: answers and modules that are wrong in one place are caught."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everyone calls it
from torch import nn

from tconv.report import Failed

from .conftest import Answer, Arrays, Study

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(60)]

Break = Callable[[Any], Answer]
BREAKS: list[Any] = []


def broken(model: str, name: str) -> Callable[[Break], Break]:
    """Keep a way to break `model`: it takes the loaded source and returns what answers wrongly."""

    def keep(function: Break) -> Break:
        BREAKS.append(pytest.param(model, function, id=f"{model}: {name}"))
        return function

    return keep


def output(model: str, name: str, change: Callable[[Arrays, Arrays], Any]) -> None:
    """Break what is answered: `change` gets the right answer and the inputs."""

    def wrap(source: Any) -> Answer:
        def answer(feeds: Arrays) -> Arrays:
            right = {key: value.copy() for key, value in source.run(feeds).items()}
            changed = change(right, feeds)
            return right if changed is None else changed

        return answer

    BREAKS.append(pytest.param(model, wrap, id=f"{model}: {name}"))


def first(model: str, name: str, change: Callable[[Any], Any]) -> None:
    """Break the first output alone."""

    def one(right: Arrays, _: Arrays) -> Arrays:
        key = next(iter(right))
        return right | {key: change(right[key])}

    output(model, name, one)


def inputs(model: str, name: str, change: Callable[[Arrays], Arrays]) -> None:
    """Break what the model sees."""
    BREAKS.append(
        pytest.param(
            model,
            lambda source: lambda feeds: source.run(feeds | change(feeds)),
            id=f"{model}: {name}",
        )
    )


def weights(model: str, name: str, change: Callable[[Any], object]) -> None:
    """Break the module: `change` gets what the factory returned."""

    def wrap(source: Any) -> Answer:
        with torch.no_grad():
            change(source.flat.module)
        return source.run  # type: ignore[no-any-return]

    BREAKS.append(pytest.param(model, wrap, id=f"{model}: {name}"))


def function(model: str, name: str, wrong: Callable[..., Any]) -> None:
    """Put another function of the same layers in the place of the right one."""
    weights(model, name, lambda module: setattr(module, "function", wrong))


# ---- names, order, dtypes, shapes ----------------------------------------------------------------

output("softmaxes", "outputs swapped", lambda y, _: y | {"soft": y["log"], "log": y["soft"]})
output("softmaxes", "outputs in another order", lambda y, _: dict(reversed(y.items())))
output("mlp", "output renamed", lambda y, _: {"logits": y["output"]})
output("softmaxes", "output missing", lambda y, _: {k: v for k, v in y.items() if k != "sum"})
output("mlp", "output too many", lambda y, x: y | x)
first("mlp", "float64 for float32", lambda y: y.astype("float64"))
first("mlp", "float16 for float32", lambda y: y.astype("float16"))
first("indices", "int32 for int64", lambda y: y.astype("int32"))
first("several_dtypes", "uint8 for bool", lambda y: y.astype("uint8"))
first("mlp", "an axis too many", lambda y: y[:, None])
first("mlp", "flattened", lambda y: y.ravel())
first("mlp", "transposed", lambda y: y.T)
first("no_batch", "scalar as vector", lambda y: y[None])
first("conv1d", "last column cut off", lambda y: y[..., :-1])

# ---- scales within a row -------------------------------------------------------------------------

first("boxes", "a probability off by 0.003", lambda y: y + np.float32([0, 0, 0, 0, 3e-3]))
first("boxes", "a probability rounded to float16", lambda y: _halved(y, (..., slice(4, 5))))
first("boxes", "no sigmoid", lambda y: _changed(y, (..., 4), lambda p: np.log(p / (1 - p))))
first("boxes", "boxes off by a tenth of a pixel", lambda y: y + np.float32([0.1, 0, 0, 0, 0]))
first("few_choices", "half of what is not masked", lambda y: np.where(y < -1e8, y, y / 2))
first("few_choices", "another masked", lambda y: np.roll(y, 1, -1))


def _changed(array: Any, place: Any, change: Callable[[Any], Any]) -> Any:
    array[place] = change(array[place])
    return array


def _halved(array: Any, place: Any) -> Any:
    return _changed(array, place, lambda part: part.astype("float16").astype("float32"))


# ---- rows and batches ----------------------------------------------------------------------------

first("mlp", "two rows of a batch swapped", lambda y: y[[*range(len(y) - 2), -1, -2][-len(y) :]])
first("mlp", "rows rolled", lambda y: np.roll(y, 1, 0))
first("mlp", "first row for all", lambda y: y[:1].repeat(len(y), 0))
first("mlp", "batch of one whatever was asked", lambda y: y[:1])
first("mlp", "mean over the batch", lambda y: y.mean(0, keepdims=True).repeat(len(y), 0))
first("mlp", "touched by its neighbours", lambda y: y - y.mean(0) * np.float32(1e-4))
first("mlp", "touched by its place", lambda y: y + np.arange(len(y), dtype="f")[:, None] / 10_000)
first("mlp", "wrong for one row alone", lambda y: y * np.float32(1.01) if len(y) == 1 else y)
first("mlp", "wrong for the largest batch", lambda y: y * np.float32(1.01) if len(y) == 8 else y)
output(
    "lstm",
    "last row padded away",
    lambda y, _: {"output": np.pad(y["output"][:-1], ((0, 1), (0, 0)))},
)


@broken("mlp", "answers of the call before")
def _stale(source: Any) -> Answer:
    seen: dict[Any, Arrays] = {}

    def answer(feeds: Arrays) -> Arrays:
        return seen.setdefault(feeds["x"].shape, source.run(feeds))

    return answer


# ---- numbers that are none -----------------------------------------------------------------------


def _one_nan(right: Arrays, feeds: Arrays) -> None:
    if len(feeds["x"]) == 8 and feeds["x"].shape[1] == 9:
        right["output"][5, 3] = np.nan


output("lstm", "one NaN in one row of one large batch", _one_nan)
first("mlp", "NaN everywhere", lambda y: y * np.float32("nan"))
output("infinities", "infinities of the other sign", lambda y, _: y | {"output_2": -y["output_2"]})
output("infinities", "numbers for NaN", lambda y, _: {k: np.nan_to_num(v) for k, v in y.items()})
output(
    "infinities",
    "largest number for infinity",
    lambda y, _: y | {"output_1": np.minimum(y["output_1"], np.finfo("f").max)},
)
first(
    "fill_values",
    "garbage beside fill values",
    lambda y: np.where(y < -1e8, y, y * 0.99).astype("f"),
)
first("fill_values", "another fill value", lambda y: np.where(y < -1e8, -1e4, y).astype("f"))
output(
    "fill_values",
    "half precision beside the lowest number",
    lambda y, _: (
        y | {"output_1": np.where(y["output_1"] < -9, y["output_1"], y["output_1"].astype("e"))}
    ),
)

output(
    "fill_values",
    "half precision beside -1e4",
    lambda y, _: (
        y | {"output_2": np.where(y["output_2"] < -9, y["output_2"], y["output_2"].astype("e"))}
    ),
)

# ---- scale, sign, rounding -----------------------------------------------------------------------

first("mlp", "0.1 % too large", lambda y: y * np.float32(1.001))
first("mlp", "sign flipped", lambda y: -y)
first("mlp", "all zeros", np.zeros_like)
first("mlp", "rounded to half precision", lambda y: y.astype("e").astype("f"))
first("small_numbers", "zeros for small numbers", np.zeros_like)
first("nothing_but_zeros", "noise for zeros", lambda y: y + np.float32(1e-6))
first("large_numbers", "an offset left out", lambda y: y - np.float32(1e3))
first("float64", "float32 passed off as float64", lambda y: y.astype("f").astype("d"))
first("float16", "1 % too large", lambda y: (y * 1.01).astype("e"))
first("whole_numbers", "64 bits cut to 32", lambda y: y.astype("int32").astype("int64"))
output(
    "whole_numbers",
    "division towards zero",
    lambda y, x: y | {"output_1": np.fix(x["x"] / 7).astype("q")},
)
output(
    "whole_numbers",
    "remainder with the sign of C",
    lambda y, x: y | {"output_2": np.fmod(x["x"], 7)},
)
output("whole_numbers", "one off in one place", lambda y, _: y["output_3"].__setitem__((0, 0), 7))
first("several_dtypes", "the flag negated", lambda y: ~y)

output("pictures_out", "the mask negated", lambda y, _: y | {"mask": ~y["mask"]})
output("pictures_out", "one flag in a million", lambda y, _: _flip_a_clear_one(y["mask"]))
output("pictures_out", "rounded, not cut off", lambda y, _: y | {"grey": y["rounded"].astype("B")})
output("pictures_out", "cut off, not rounded", lambda y, _: y | {"rounded": y["grey"].astype("i")})
output("pictures_out", "all one too many", lambda y, _: y | {"rounded": y["rounded"] + 1})


def _flip_a_clear_one(mask: Any) -> None:
    """Flip the flag in the middle of the largest run of equal ones: far from any border."""
    flat = mask.reshape(-1)
    borders = np.flatnonzero(np.diff(flat))
    widest = np.diff(borders).argmax()
    place = (borders[widest] + borders[widest + 1]) // 2
    flat[place] = ~flat[place]


# ---- indices -------------------------------------------------------------------------------------

output("indices", "best but one", lambda y, _: y | {"best": y["top"][:, 1]})
output("indices", "first two exchanged", lambda y, _: y | {"top": y["top"][:, [1, 0, 2, 3, 4]]})
output("indices", "index counted from 1", lambda y, _: y | {"best": y["best"] + 1})
output("indices", "one index twice", lambda y, _: y | {"top": y["top"][:, [0, 0, 2, 3, 4]]})
first(
    "sorted_by_score",
    "neighbours far apart exchanged",
    lambda y: y[:, [6, *range(1, 6), 0, *range(7, 6000)]],
)
first("sorted_by_score", "ascending for descending", lambda y: y[:, ::-1])

# ---- inputs --------------------------------------------------------------------------------------

inputs("einsum", "inputs swapped", lambda f: {"x": f["y"], "y": f["x"]})
inputs("pictures", "blue and red exchanged", lambda f: {"x": f["x"][:, ::-1]})
inputs("pictures", "values wrapped at 255", lambda f: {"x": np.clip(f["x"], 0, 255)})
inputs("mlp", "inputs cut off at 4", lambda f: {"x": np.clip(f["x"], -4, 4)})
inputs("mlp", "negative inputs lost", lambda f: {"x": np.abs(f["x"])})
inputs("mlp", "inputs rounded to half precision", lambda f: {"x": f["x"].astype("e").astype("f")})
inputs("text_encoder", "mask ignored", lambda f: {"mask": np.ones_like(f["mask"])})
inputs("text_encoder", "padding on the left", lambda f: {"mask": f["mask"][:, ::-1].copy()})
inputs(
    "text_encoder",
    "mask one too long",
    lambda f: {"mask": np.maximum(f["mask"], np.roll(f["mask"], 1, 1) & 1)},
)
inputs("text_encoder", "largest id cut off", lambda f: {"ids": np.minimum(f["ids"], 98)})
inputs("text_encoder", "ids shifted by one", lambda f: {"ids": np.roll(f["ids"], 1, 1)})


def _forget_the_last(feeds: Arrays) -> Arrays:
    mask = feeds["mask"].copy()
    if mask.shape[1] == 32:
        mask[:, -1] = 0
    return {"mask": mask}


inputs("text_encoder", "one token less at the largest length", _forget_the_last)
inputs(
    "rotary",
    "one step late at the largest length",
    lambda f: {"x": np.roll(f["x"], f["x"].shape[1] == 40, 1)},
)
inputs(
    "lstm",
    "wrong for a single step",
    lambda f: {"x": f["x"] * (1.001 if f["x"].shape[1] == 1 else 1)},
)

# ---- weights -------------------------------------------------------------------------------------


def _each(module: Any, change: Callable[[Any], Any]) -> None:
    for parameter in module.parameters():
        parameter.copy_(change(parameter))


def _quantise(w: Any) -> Any:
    step = w.abs().max() / 127
    return (w / step).round() * step


for _model in (
    "mlp",
    "deep_mlp",
    "conv2d",
    "attention",
    "lstm",
    "text_encoder",
    "patches",
    "distances",
):
    weights(_model, "weights rounded to float16", lambda m: _each(m, lambda w: w.half().float()))
for _model in ("mlp", "text_encoder", "gated"):
    weights(
        _model, "weights rounded to bfloat16", lambda m: _each(m, lambda w: w.bfloat16().float())
    )
    weights(_model, "weights rounded to int8", lambda m: _each(m, _quantise))
weights("mlp", "one weight off by 1 %", lambda m: m.layers["a"].weight[3, 2].mul_(1.01))
weights(
    "conv2d", "one weight off by 1 %", lambda m: m.layers["net"][3].weight[0, 1, 1, 1].mul_(1.01)
)
weights(
    "deep_mlp",
    "one weight of a deep layer off by 10 %",
    lambda m: m.layers["deep"][40].weight[5, 5].mul_(1.1),
)
weights("deep_mlp", "one square matrix transposed", lambda m: m.layers["deep"][40].weight.t_())
weights(
    "attention",
    "queries and keys exchanged",
    lambda m: m.layers["layer"].in_proj_weight.copy_(
        m.layers["layer"].in_proj_weight[[*range(16, 32), *range(16), *range(32, 48)]]
    ),
)
weights("mlp", "bias left out", lambda m: m.layers["b"].bias.zero_())
weights("mlp", "one bias left out", lambda m: m.layers["a"].bias[7].zero_())
weights("text_encoder", "row of the largest id zero", lambda m: m.embedding.weight[99].zero_())
weights("text_encoder", "row of id 0 zero, as for padding", lambda m: m.embedding.weight[0].zero_())
weights(
    "text_encoder",
    "last place like the one before",
    lambda m: m.places.weight[31].copy_(m.places.weight[30]),
)
weights(
    "text_encoder",
    "places beyond 16 start again",
    lambda m: m.places.weight[16:].copy_(m.places.weight[:16]),
)
weights(
    "lstm",
    "directions exchanged",
    lambda m: m.layers["layer"].weight_ih_l0.copy_(m.layers["layer"].weight_ih_l0_reverse),
)
weights("normed_batches", "batch norm left training", lambda m: m.layers["net"][1].train())
weights("normed_batches", "dropout left on", lambda m: m.layers["net"][3].train())
weights(
    "normed_batches", "running mean forgotten", lambda m: m.layers["net"][1].running_mean.zero_()
)
weights("layer_norm", "epsilon of 1e-3", lambda m: setattr(m.layers["n"], "eps", 1e-3))
weights("layer_norm", "epsilon of 1e-6", lambda m: setattr(m.layers["n"], "eps", 1e-6))
weights("rms_norm", "epsilon of 1e-6", lambda m: setattr(m.layers["n"], "eps", 1e-6))
weights("conv2d", "other dilation", lambda m: setattr(m.layers["net"][3], "dilation", (1, 1)))

# ---- operators -----------------------------------------------------------------------------------

function("mlp", "GELU by tanh", lambda x, a, b: b(F.gelu(a(x), approximate="tanh")))
function(
    "gated", "hardswish for SiLU", lambda x, up, gate, down: down(F.hardswish(gate(x)) * up(x))
)
function("branching", "branch frozen at the first", lambda x, a, b: a(x) + 0 * b(x))
function("branching", "branch decided by the batch", lambda x, a, b: a(x) if x.sum() > 0 else b(x))
function(
    "branching", "branch decided by the first row", lambda x, a, b: a(x) if x[0].sum() > 0 else b(x)
)
function(
    "sums",
    "variance over n and not n - 1",
    lambda x: (
        x.cumsum(1),
        x.prod(1),
        x.std(1, correction=0),
        x.var(1, correction=0),
        x.norm(dim=1),
    ),
)
function(
    "sums",
    "sum from the other end",
    lambda x: (x.flip(1).cumsum(1).flip(1), x.prod(1), x.std(1), x.var(1), x.norm(dim=1)),
)
function(
    "softmaxes",
    "softmax over the batch",
    lambda x: {
        "soft": x.softmax(0),
        "log": x.log_softmax(-1),
        "sum": x.logsumexp(-1),
        "gate": x.sigmoid(),
    },
)
function(
    "softmaxes",
    "temperature of 1.001",
    lambda x: {
        "soft": (x / 1.001).softmax(-1),
        "log": x.log_softmax(-1),
        "sum": x.logsumexp(-1),
        "gate": x.sigmoid(),
    },
)
function(
    "softmaxes",
    "overflow in the sum of exponentials",
    lambda x: {
        "soft": x.softmax(-1),
        "log": x.log_softmax(-1),
        "sum": x.exp().clamp(max=1e4).sum(-1).log(),
        "gate": x.sigmoid(),
    },
)
function(
    "pooling",
    "padding counted in",
    lambda x: (
        F.max_pool2d(x, 3, 2),
        F.avg_pool2d(x, 2),
        F.avg_pool2d(x, 12, padding=1, count_include_pad=True)[..., :1, :1],
    ),
)
function(
    "pooling",
    "last column of a pool dropped",
    lambda x: (
        F.max_pool2d(x, 3, 2),
        F.avg_pool2d(x[..., :-1], 2, ceil_mode=True),
        F.adaptive_avg_pool2d(x, 1),
    ),
)
function(
    "resizing",
    "corners aligned",
    lambda x: (
        F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True),
        F.interpolate(x, size=(6, 6)),
        F.pad(x, (1, 2, 0, 1), "reflect"),
    ),
)
function(
    "resizing",
    "edge repeated, not mirrored",
    lambda x: (
        F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        F.interpolate(x, size=(6, 6)),
        F.pad(x, (1, 2, 0, 1), "replicate"),
    ),
)
function(
    "spectrum",
    "conjugate",
    lambda x: torch.view_as_real(torch.fft.rfft(x + 5).conj().resolve_conj()),
)
function(
    "patches",
    "not causal",
    lambda x, embed, head: head(
        F.scaled_dot_product_attention(*[embed(x).flatten(2).transpose(1, 2)] * 3).mean(1)
    ),
)
function("lstm", "state of a fixed step", lambda x, layer: layer(x)[0][:, min(4, x.shape[1] - 1)])
function("no_batch", "size frozen in a mean", lambda x, a: (a(x).sum(), a(x) - x.sum(0) / 2))
function(
    "gathering",
    "rolled the other way",
    lambda x, y: (
        x.gather(1, y),
        torch.zeros_like(x).scatter_add(1, y, x[:, :3]),
        x.flip(1).roll(-2, 1),
    ),
)
function(
    "gathering",
    "last write wins, not the sum",
    lambda x, y: (
        x.gather(1, y),
        torch.zeros_like(x).scatter(1, y, x[:, :3]),
        x.flip(1).roll(2, 1),
    ),
)


def _tf32(x: Any) -> Any:
    """Round to a mantissa of 10 bits, as a GPU does that was not told otherwise."""
    return (x.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


@broken("mlp", "TF32")
def _rounding_products(source: Any) -> Answer:
    def linear(layer: nn.Linear, x: Any) -> Any:
        return F.linear(_tf32(x), _tf32(layer.weight), layer.bias)

    for layer in source.flat.module.layers.values():
        layer.forward = functools.partial(linear, layer)
    return source.run  # type: ignore[no-any-return]


@pytest.mark.parametrize(("model", "break_it"), BREAKS)
def test_it_is_noticed(model: str, break_it: Break, study: Study) -> None:
    studied = study(model)
    torch.manual_seed(1)
    verdict = studied.judge(break_it(studied.load()))
    assert isinstance(verdict, Failed)
    assert "can't be run" not in verdict.problem, "the mutation itself is wrong"
    assert verdict.remedy


def test_there_are_many_and_each_has_a_name() -> None:
    assert len({case.id for case in BREAKS}) == len(BREAKS) > 100
