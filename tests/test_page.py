"""The record as a page: whole by itself, well-formed, and looked at in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from tconv.cli import main
from tconv.page import to_html
from tconv.process import Cost
from tconv.report import (
    Attempt,
    Batching,
    Failed,
    NotJudged,
    OutputCheck,
    Passed,
    Planned,
    Point,
    Prepared,
    Report,
    Score,
    TargetReport,
    Worst,
)
from tconv.spec import parse_signature

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
EVIL = "<script>alert(1)</script>"
POINTS = tuple(
    Point(kind, rows, {"seq": length}, 1e-6 * length, passed=True)
    for kind in ("ordinary", "flipped")
    for rows in (1, 2, 8)
    for length in (16, 1, 64)
)
BAD = (*POINTS, Point("large", 8, {"seq": 64}, None, passed=False))


def _report() -> Report:
    fine = OutputCheck(
        "logits", 6.4e-5, 2e-4, 1e-6, floor=2e-5, cosine=0.9999999, relative_l2=1e-6,
        mismatched=0.0, agreement=1.0, points=POINTS,
    )  # fmt: skip
    worst = Worst("large-seq64", (7, 3), 1.5, -2.5)
    wrong = OutputCheck(EVIL, None, 2e-5, floor=2e-5, mismatched=0.25, worst=worst, points=BAD)
    score = Score("top1", "logits", 100, "sha256:0", 0.91, 0.9)
    cost = Cost(1.5, 300_000_000)
    passed = Passed((fine,), 18, "cpu", score)
    targets = (
        TargetReport("onnx", passed, (Attempt("dynamo", passed, cost, cost),)),
        TargetReport("torchscript", Failed(f"It differs {EVIL}.", "Mend it.", (wrong,))),
        TargetReport("trt", NotJudged("There is no GPU.", "Use one.")),
    )  # fmt: skip
    prepared = Prepared(
        "m.py:f",
        "python",
        "torch",
        parse_signature(["x:int64[batch,seq=1..64]"]),
        Batching(8),
        plan=(Planned("ordinary", {"seq": 16}), Planned("large", {"seq": 64}, 0.0, "too dear")),
        versions={"torch": "2.9"},
    )
    return Report("model", "m.py:f", 1, prepared, cost, targets, 4.2, "0.1", {"python": "3.11"})


@pytest.fixture(scope="module")
def page() -> str:
    return to_html(_report(), {"source": {"inputs": ["x:int64[batch,seq=1..64]"]}, "budget": []})


class _Balance(HTMLParser):
    """Fails on a tag that is not closed, and collects what would ask a network."""

    EMPTY = frozenset({"meta", "link", "rect", "line", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.asked: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.asked += [v for k, v in attrs if k in ("src", "href") and v and v[0] != "#"]
        self.ids += [given["id"]] if given.get("id") else []
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_asks_nothing(page: str) -> None:
    parser = _Balance()
    parser.feed(page)
    assert not parser.open
    assert parser.asked == ["data:,"]
    assert len(set(parser.ids)) == len(parser.ids)
    assert "<script" not in page
    assert not re.search(r"https?://|@import|url\(", page)
    assert len(page) < 60_000


def test_the_verdict_comes_first_and_everything_is_there(page: str) -> None:
    body = page[page.index("<main>") :]
    places = [body.index(text) for text in ("1 of 3 targets agree", "✓ onnx", "✗ torchscript", "? trt", "Time and memory", "Signature", "The sweep", "To reproduce")]  # fmt: skip  # noqa: E501
    assert places == sorted(places)
    for text in (
        "Mend it.", "There is no GPU.", "&lt;script&gt;", "1.5 for -2.5 at [7, 3] of large-seq64",
        "top1", "0.9;", "0.91", "6.4e-05", "0.9999999", "25.00%", "1.50 s, 300 MB", "too dear",
        "1 were left out", "x:int64[batch,seq=1..64]", "tconv build m.py:f --name model",
        "torch 2.9",
    ):  # fmt: skip
        assert text in body, text


def test_the_heat_map_holds_the_worst_of_every_place(page: str) -> None:
    section = page[page.index('id="torchscript"') : page.index('id="trt"')]
    cells = re.findall(r"<title>batch (\d+), seq (\d+): (\S+) of what", section)
    assert len(cells) == 9
    assert ("8", "64", "differs") in cells
    assert ("1", "16", "0.8") in cells
    names = re.findall(r'text-anchor="middle">(seq \d+)<', section)
    assert names == ["seq 1", "seq 16", "seq 64"]


def test_a_build_leaves_its_page_and_report_writes_it_anew(
    build_model: Callable[..., Report], tmp_path: Path
) -> None:
    build_model("traps:plain_mlp", targets="torchscript")
    kept = (tmp_path / "build/plain_mlp/report.html").read_text()
    again = tmp_path / "again.html"
    run = CliRunner().invoke(main, ["report", f"{tmp_path}/build/plain_mlp", "--html", str(again)])
    assert run.exit_code == 0, run.output
    assert again.read_text() == kept
    assert "plain_mlp: 1 of 1 targets agree" in kept


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_a_browser_shows_it_without_a_complaint(
    page: str, width: int, dark: bool, tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "page.html").write_text(page)
    shot = tmp_path / "shot.png"
    run = subprocess.run(
        [
            str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--enable-logging=stderr", f"--window-size={width},1600", f"--screenshot={shot}",
            *(["--force-dark-mode"] if dark else []), f"file://{tmp_path}/page.html",
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in run.stderr
    with image.open(shot) as picture:
        counted = picture.convert("RGB").getcolors(1 << 24)
    colours = {colour: count for count, colour in counted}
    ground = max(colours, key=lambda colour: colours[colour])
    assert (max(ground) < 60) == dark
    green = [c for c in colours if c[1] > c[0] + 40 and c[1] > c[2] + 20]
    red = [c for c in colours if c[0] > c[1] + 60 and c[0] > c[2] + 40]
    assert green, "what passed shows"
    assert red, "what failed shows"
