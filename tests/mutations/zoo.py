"""Healthy models, one for each kind of layer: the validator must not complain about any.

Every factory returns `(module, examples)`; `INPUTS` has the `--input` texts of those with any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everyone calls it
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]

INPUTS: dict[str, tuple[str, ...]] = {}
FACTORIES: dict[str, Callable[[], Built]] = {}


def model(*inputs: str) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Add a factory to the zoo."""

    def keep(factory: Callable[[], Built]) -> Callable[[], Built]:
        FACTORIES[factory.__name__], INPUTS[factory.__name__] = factory, inputs
        return factory

    return keep


class Call(nn.Module):
    """Layers, and a function of them and of the input x."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleDict(layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, **dict(self.layers.items()))


class Call2(Call):
    """The same, of two inputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y, **dict(self.layers.items()))


def _rows(*shape: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(2, *shape)}


@model()
def mlp() -> Built:
    return Call(lambda x, a, b: b(F.gelu(a(x))), a=nn.Linear(8, 16), b=nn.Linear(16, 4)), _rows(8)


@model()
def deep_mlp() -> Built:
    layers = [m for _ in range(40) for m in (nn.Linear(32, 32), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.kaiming_normal_(layer.weight)  # type: ignore[arg-type]
    return Call(lambda x, deep: deep(x), deep=nn.Sequential(*layers)), _rows(32)


@model()
def conv1d() -> Built:
    return Call(lambda x, c: c(x), c=nn.Conv1d(4, 6, 3, padding=1)), _rows(4, 20)


@model("x:float32[batch,3,h=16..17,w=16..19]")
def conv2d() -> Built:
    norm = nn.BatchNorm2d(6)
    nn.init.uniform_(norm.running_mean)  # type: ignore[arg-type]
    nn.init.uniform_(norm.running_var, 0.5, 2)  # type: ignore[arg-type]
    net = nn.Sequential(nn.Conv2d(3, 6, 3, 2), norm, nn.SiLU(), nn.Conv2d(6, 4, 3, dilation=2))
    return Call(lambda x, net: net(x).mean((2, 3)), net=net), _rows(3, 16, 16)


@model()
def transposed_conv() -> Built:
    net = nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1, output_padding=1)
    return Call(lambda x, net: torch.sigmoid(net(x)), net=net), _rows(4, 5, 5)


@model()
def depthwise_conv() -> Built:
    net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Hardswish(), nn.Conv2d(8, 4, 1))
    return Call(lambda x, net: net(x), net=net), _rows(8, 9, 9)


@model("x:float32[batch,n=1..9,24]")
def layer_norm() -> Built:
    return Call(lambda x, n: n(x), n=nn.LayerNorm(24)), _rows(4, 24)


@model()
def group_norm() -> Built:
    net = nn.Sequential(nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True))
    return Call(lambda x, net: net(x), net=net), _rows(8, 6, 6)


@model()
def rms_norm() -> Built:
    return Call(lambda x, n: n(x), n=nn.RMSNorm(24)), _rows(4, 24)


@model("x:float32[batch,seq=1..20,16]")
def attention() -> Built:
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    return Call(lambda x, layer: layer(x, x, x)[0], layer=layer), _rows(6, 16)


@model("x:float32[batch,seq=2..12,16]")
def encoder() -> Built:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    return Call(lambda x, layer: layer(x), layer=layer), _rows(6, 16)


class MaskedMean(nn.Module):
    """Token ids and their mask, as of a text encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.places = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        h = self.embedding(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        scores = h @ h.transpose(1, 2) / 4
        scores = scores.masked_fill(mask[:, None] == 0, torch.finfo(h.dtype).min)
        h = torch.tanh(scores.softmax(-1) @ h) * mask[..., None]
        return self.head(h.sum(1) / mask.sum(1, keepdim=True))


@model("ids:int64[batch,seq=1..32]", "mask:int64[batch,seq=1..32]")
def text_encoder() -> Built:
    ids, mask = torch.randint(0, 100, (2, 8)), torch.ones(2, 8, dtype=torch.int64)
    ids[0, :2], mask[1, 5:] = torch.tensor([0, 99]), 0
    return MaskedMean(), {"ids": ids, "mask": mask}


@model("x:float32[batch,seq=1..9,8]")
def lstm() -> Built:
    layer = nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True)
    return Call(lambda x, layer: layer(x)[0][:, -1], layer=layer), _rows(5, 8)


@model()
def gru() -> Built:
    layer = nn.GRU(8, 12, batch_first=True)
    return Call(lambda x, layer: layer(x), layer=layer), _rows(5, 8)


@model()
def embedding_bag() -> Built:
    ids = torch.randint(0, 50, (2, 7))
    ids[0, 0], ids[0, -1] = 0, 49
    bag = nn.EmbeddingBag(50, 8, mode="mean")
    return Call(lambda x, bag: bag(x), bag=bag), {"x": ids}


@model()
def pooling() -> Built:
    return Call(
        lambda x: (F.max_pool2d(x, 3, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1))
    ), _rows(4, 12, 12)


@model()
def softmaxes() -> Built:
    return Call(
        lambda x: {
            "soft": x.softmax(-1),
            "log": F.log_softmax(x, -1),
            "sum": x.logsumexp(-1),
            "gate": x.sigmoid(),
        }
    ), _rows(2000)


@model()
def einsum() -> Built:
    weight = nn.Linear(6, 24, bias=False)
    return Call2(
        lambda x, y, w: torch.einsum("bi,oij,bj->bo", x, w.weight.view(4, 6, 6), y), w=weight
    ), {"x": torch.randn(2, 6), "y": torch.randn(2, 6)}


@model()
def gated() -> Built:
    return Call(
        lambda x, up, gate, down: down(F.silu(gate(x)) * up(x)),
        up=nn.Linear(16, 32, bias=False),
        gate=nn.Linear(16, 32, bias=False),
        down=nn.Linear(32, 16, bias=False),
    ), _rows(3, 16)


@model()
def indices() -> Built:
    def choose(x: torch.Tensor, a: nn.Module) -> Any:
        scores = a(x)
        top = scores.topk(5)
        return {"best": scores.argmax(-1), "top": top.indices, "values": top.values}

    return Call(choose, a=nn.Linear(8, 200)), _rows(8)


@model()
def sorted_by_score() -> Built:
    """So many scores that rounding alone decides between some of them."""
    return Call(lambda x, a: a(x).argsort(-1), a=nn.Linear(64, 6000)), _rows(64)


@model()
def sums() -> Built:
    return Call(lambda x: (x.cumsum(1), x.prod(1), x.std(1), x.var(1), x.norm(dim=1))), _rows(300)


@model()
def several_dtypes() -> Built:
    return Call(
        lambda x, a: {
            "flag": a(x) > 0,
            "count": (x > 0).sum(-1),
            "small": x.mul(10).to(torch.int32),
            "wide": a(x).double(),
            "half": a(x).half(),
        },
        a=nn.Linear(8, 4),
    ), _rows(8)


@model()
def large_numbers() -> Built:
    return Call(lambda x, a: a(x) * 1e6 + 1e5, a=nn.Linear(8, 4)), _rows(8)


@model()
def small_numbers() -> Built:
    return Call(lambda x, a: a(x) * 1e-9, a=nn.Linear(8, 4)), _rows(8)


@model()
def fill_values() -> Built:
    def fill(x: torch.Tensor, a: nn.Module) -> Any:
        y = a(x)
        low = torch.finfo(y.dtype).min
        return y.masked_fill(y < 0, -1e9), y.masked_fill(y < 0, low), y + (y < 0) * -1e4

    return Call(fill, a=nn.Linear(8, 30)), _rows(8)


@model()
def infinities() -> Built:
    return Call(lambda x, a: (a(x).log(), (a(x) * 100).exp(), a(x) / 0), a=nn.Linear(8, 30)), _rows(
        8
    )


@model()
def spectrum() -> Built:
    return Call(lambda x: torch.view_as_real(torch.fft.rfft(x + 5))), _rows(512)


@model()
def no_batch() -> Built:
    return Call(lambda x, a: (a(x).sum(), a(x) - x.mean(0)), a=nn.Linear(8, 8)), _rows(8)


@model("x:int64[batch,n=1..9]")
def whole_numbers() -> Built:
    x = torch.randint(-1000, 1000, (2, 4))
    return Call(lambda x: (x * 10**15, x // 7, x % 7, x.to(torch.int32) << 3)), {"x": x}


@model()
def float64() -> Built:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    return Call(lambda x, net: net(x), net=net), {"x": torch.randn(2, 8, dtype=torch.float64)}


@model()
def float16() -> Built:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).half()
    return Call(lambda x, net: net(x), net=net), {"x": torch.randn(2, 8).half()}


@model("x:float32[batch,seq=1..40,8]")
def rotary() -> Built:
    def turn(x: torch.Tensor) -> Any:
        places = torch.arange(x.shape[1], dtype=torch.float32)[:, None]
        angles = places * torch.exp(torch.arange(4) * -(math.log(10000.0) / 4))
        sin, cos = angles.sin(), angles.cos()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    return Call(turn), _rows(6, 8)


@model()
def gathering() -> Built:
    def gather(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.gather(1, y), torch.zeros_like(x).scatter_add(1, y, x[:, :3]), x.flip(1).roll(2, 1)

    return Call2(gather), {"x": torch.randn(2, 9), "y": torch.randint(0, 9, (2, 3))}


@model("x:float32[batch,3,h=4..9,5]")
def resizing() -> Built:
    def resize(x: torch.Tensor) -> Any:
        up = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return up, F.interpolate(x, size=(6, 6), mode="nearest"), F.pad(x, (1, 2, 0, 1), "reflect")

    return Call(resize), _rows(3, 5, 5)


@model()
def patches() -> Built:
    def split(x: torch.Tensor, embed: nn.Module, head: nn.Module) -> Any:
        h = embed(x).flatten(2).transpose(1, 2)
        return head(F.scaled_dot_product_attention(h, h, h, is_causal=True).mean(1))

    return Call(split, embed=nn.Conv2d(3, 16, 4, 4), head=nn.Linear(16, 5)), _rows(3, 16, 16)


@model()
def unet() -> Built:
    def run(x: torch.Tensor, down: nn.Module, up: nn.Module, out: nn.Module) -> Any:
        h = F.relu(down(x))
        return out(torch.cat([F.interpolate(F.relu(up(h)), scale_factor=2), x], 1))

    down, up = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
    return Call(run, down=down, up=up, out=nn.Conv2d(11, 2, 1)), _rows(3, 8, 8)


@model()
def distances() -> Built:
    anchors = nn.Linear(8, 20, bias=False)

    def measure(x: torch.Tensor, anchors: Any) -> Any:
        return torch.cdist(x, anchors.weight), F.cosine_similarity(
            x[:, None], anchors.weight[None], -1
        )

    return Call(measure, anchors=anchors), _rows(8)


@model()
def pictures() -> Built:
    """Inputs of 0..255, as pictures are."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    x = torch.rand(2, 3, 8, 8) * 255
    return Call(lambda x, net: net((x - 127.5) / 58.0), net=net), {"x": x}


@model()
def nothing_but_zeros() -> Built:
    head = nn.Linear(8, 4)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return Call(lambda x, head: (head(x), x), head=head), _rows(8)


@model()
def warping() -> Built:
    def warp(x: torch.Tensor) -> Any:
        theta = torch.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.9, 0.1]]]).expand(x.shape[0], 2, 3)
        grid = F.affine_grid(theta, x.shape, align_corners=False)  # type: ignore[arg-type]
        return F.grid_sample(x, grid, align_corners=False)

    return Call(warp), _rows(2, 7, 7)


@model()
def pictures_out() -> Built:
    """So many numbers are cut here that rounding alone decides of some."""

    def cut(x: torch.Tensor, a: nn.Module, b: nn.Module) -> Any:
        y = b(F.relu(a(x)))
        y = y - y.mean((2, 3), keepdim=True)
        grey = y.sigmoid() * 255
        return {
            "mask": y > 0,
            "grey": grey.to(torch.uint8),
            "rounded": grey.round().int(),
            "kinds": torch.cat([y, -y, y * 0 + 0.01], 1).argmax(1),
        }

    a, b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1)
    return Call(cut, a=a, b=b), _rows(3, 192, 192)


@model()
def branching() -> Built:
    def choose(x: torch.Tensor, a: nn.Module, b: nn.Module) -> torch.Tensor:
        return torch.where(x.sum(1, keepdim=True) > 0, a(x), b(x))

    return Call(choose, a=nn.Linear(8, 4), b=nn.Linear(8, 4)), _rows(8)


@model()
def normed_batches() -> Built:
    norm = nn.BatchNorm1d(16)
    nn.init.uniform_(norm.running_mean)  # type: ignore[arg-type]
    nn.init.uniform_(norm.running_var, 0.5, 2)  # type: ignore[arg-type]
    net = nn.Sequential(nn.Linear(8, 16), norm, nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
    return Call(lambda x, net: net(x), net=net), _rows(8)


@model()
def solving() -> Built:
    def solve(x: torch.Tensor) -> Any:
        return torch.linalg.solve(x @ x.transpose(1, 2) + torch.eye(6), x)

    return Call(solve), _rows(6, 6)


@model()
def boxes() -> Built:
    """Boxes of hundreds of pixels beside a probability, in one row."""

    def find(x: torch.Tensor, place: nn.Module, sure: nn.Module) -> torch.Tensor:
        return torch.cat([place(x) * 300 + 300, sure(x).sigmoid()], -1)

    return Call(find, place=nn.Linear(8, 4), sure=nn.Linear(8, 1)), _rows(6, 8)


@model()
def few_choices() -> Built:
    """One of four is masked, here or there: a single fill value beside few others."""

    def mask(x: torch.Tensor, a: nn.Module) -> torch.Tensor:
        y = a(x)
        return y.masked_fill(y == y.max(-1, keepdim=True).values, -1e9)

    return Call(mask, a=nn.Linear(8, 4)), _rows(8)


@model()
def cancelling() -> Built:
    """A small column that is no more precise than the large terms it is left of."""

    def cancel(x: torch.Tensor, a: nn.Module) -> torch.Tensor:
        y = a(x)
        return torch.cat([y * 1e3, (y * 1e3 + 0.1) - y * 1e3], -1)

    return Call(cancel, a=nn.Linear(8, 4)), _rows(8)
