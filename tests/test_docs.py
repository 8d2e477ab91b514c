"""The documents say what the code does: commands, options, tables, exit codes."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tconv import errors
from tconv.cli import main
from tconv.convert.registry import SOURCE_NAMES, TARGET_NAMES, find_target
from tconv.validate.tolerance import FLOORS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()


def _blocks(text: str) -> list[str]:
    return re.findall(r"```console\n(.*?)```", text, re.DOTALL)


def _commands(text: str) -> list[str]:
    lines = [line for block in _blocks(text) for line in block.splitlines()]
    return [line[2:].partition("#")[0].strip() for line in lines if line.startswith("$ ")]


TCONV = [command for command in _commands(README) if command.startswith("tconv ")]
MAKE = [command for command in _commands(README) if command.startswith("make ")]


@pytest.mark.parametrize("command", TCONV, ids=lambda c: c[:40])
def test_commands_of_the_readme_parse(command: str) -> None:
    words = shlex.split(command)[1:]
    name, context = words[0], click.Context(main, **main.context_settings)
    found = main.get_command(context, name)
    assert found is not None
    found.make_context(name, words[1:], parent=context)


@pytest.mark.parametrize("command", MAKE, ids=str)
def test_make_targets_of_the_readme_exist(command: str) -> None:
    assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_two_commands_are_on_the_first_screen() -> None:
    first = "\n".join(README.splitlines()[:20])
    assert "make demo" in first
    assert "make test" in first


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_is_in_the_readme_and_has_an_example(name: str) -> None:
    assert f"tconv {name}" in README
    help_text = CliRunner().invoke(main, [name, "--help"]).output
    assert "Example:" in help_text
    assert f"tconv {name}" in help_text


def test_every_option_that_the_readme_names_exists() -> None:
    known = {o for c in main.commands.values() for p in c.params for o in p.opts}
    foreign = {"--model-control-mode"}
    named = set(re.findall(r"`(--[a-z-]+)", README))
    assert named <= known | foreign


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_the_readme_has_a_row_for_every_target(name: str) -> None:
    row = next(line for line in README.splitlines() if line.startswith(f"| `{name}` |"))
    if f"| `{find_target(name).platform}` |" not in row:
        row = next(
            line
            for line in README.splitlines()
            if line.startswith(f"| `{name}` |") and find_target(name).platform in line
        )
    assert find_target(name).platform in row


def test_the_readme_has_every_extra() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    for extra in config["options.extras_require"]:
        assert f"| `{extra}` |" in README, extra


def test_the_readme_has_every_exit_code() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    codes = {k.exit_code for k in kinds if issubclass(k, errors.TconvError)} | {0, errors.BUG}
    table = README.partition("## Exit codes")[2].partition("##")[0]
    assert codes <= {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}


def test_the_readme_tells_the_tolerance_that_is_used() -> None:
    assert f"float32: {FLOORS['float32']:.0e}".replace("e-0", "e-") in README


def test_architecture_names_every_module_of_the_root() -> None:
    for path in ROOT.glob("*.py"):
        if not path.stem.startswith("__"):
            assert f"`{path.stem}`" in ARCHITECTURE, path.stem


def test_the_sources_are_in_the_readme() -> None:
    table = README.partition("| MODEL | is |")[2].partition("\n\n")[0].lower()
    for name in SOURCE_NAMES:
        assert name in table
