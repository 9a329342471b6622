"""Commands for tests, called in this process."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from fdml.cli.app import app_for


def call(*words: object) -> Result:
    """Call `fdml` with these words."""
    given = [str(word) for word in words]
    return CliRunner().invoke(app_for(given), given)


def succeed(*words: object) -> str:
    """Call a command that must end well; returns its standard output."""
    result = call(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def fail(error: type[Exception], *words: object) -> str:
    """Call a command that must end with an error of ours; returns its message."""
    result = call(*words)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, error), result.exception
    return str(result.exception)
