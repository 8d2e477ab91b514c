"""Where errors end: each is printed once, as a problem and a remedy, and becomes an exit code."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..errors import FULL_DISK, TconvError, Unavailable, UsageProblem, to_json

INTERRUPTED = 130
"""What shells give a program that ctrl-C ended."""


class Boundary(click.Group):
    """A command line that ends every failure in words and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except TconvError as error:
            if "--json" in sys.argv:
                import json

                click.echo(json.dumps({"error": to_json(error)}))
            click.echo(f"error: {error.problem}", err=True)
            click.echo(f"  try: {error.remedy}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("Interrupted; what ran was stopped.", err=True)
            sys.exit(INTERRUPTED)
        except (click.exceptions.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:  # who read the output has left; click ends quietly
            raise
        except OSError as error:
            _explain_system(error)
        except Exception:
            import traceback

            from ..errors import BUG

            traceback.print_exc()
            click.echo("This is a bug in tconv; please report it with the lines above.", err=True)
            sys.exit(BUG)


def _explain_system(error: OSError) -> None:
    """End with what the system refused: a full disk behind stdout, a folder gone."""
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    click.echo(f"error: The system refused: {what[:300]}.", err=True)
    click.echo("  try: Make room, or choose other folders and shorter names.", err=True)
    kind = Unavailable if error.errno in FULL_DISK else UsageProblem
    sys.exit(kind.exit_code)
