"""Publish what a JSON file asks for, and end with the exit code: a process that can be killed."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tconv.errors import TconvError
from tconv.export.publish import PublishRequest, publish

try:
    publish(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=PublishRequest))
except TconvError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
