"""Every subcommand of `ps` shows examples, and they use options that it has."""

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tools.cli import app
from tools.ps.cli import app as ps_app

COMMANDS = get_command(ps_app).commands


def test_the_commands_are_those_of_the_guide(checkout):
    guide = (checkout / "docs" / "paramserver.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `ps ([\w-]+)", guide, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_has_examples_with_options_that_exist(name):
    result = CliRunner().invoke(app, ["ps", name, "--help"])
    assert result.exit_code == 0 and "Examples" in result.output
    command = COMMANDS[name]
    options = {option for parameter in command.params for option in parameter.opts}
    examples = [line for line in command.epilog.splitlines() if "lambda-svc" in line]
    assert examples and all(line.strip().startswith(f"lambda-svc ps {name}") for line in examples)
    assert {option for line in examples for option in re.findall(r"--[a-z-]+", line)} <= options
