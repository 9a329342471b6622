import importlib
import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer

import fdml
from fdml.cli.app import COMMANDS, main
from fdml.errors import SettingsError
from tests.cli.commands import call, fail, succeed


def test_the_version_is_that_of_the_installed_package():
    assert fdml.__version__ == version("fdml")
    assert succeed("--version") == f"fdml {fdml.__version__}\n"


def test_the_version_is_shown_without_loading_a_command():
    code = (
        "import sys; from fdml.cli.app import main; sys.argv = ['fdml', '--version']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'grpc', 'numba', 'pyarrow'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.splitlines() == [f"fdml {fdml.__version__}", "[]"]


GROUPS = ("keys", "budget", "runs", "model")
SINGLE = [name for name in COMMANDS if name not in GROUPS]


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_of_a_group_has_a_help_text_and_a_help_for_every_argument(group):
    found = getattr(importlib.import_module(f"fdml.cli.{group}"), group)
    listed = succeed(group, "--help")
    for each in found.registered_commands:
        command, name = each.callback, each.name or each.callback.__name__
        assert name in listed
        assert inspect.getdoc(command)
        succeed(group, name, "--help")
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            assert parameter.annotation.__metadata__[0].help, parameter.name


@pytest.mark.parametrize("name", SINGLE)
def test_every_command_has_a_help_text_and_a_help_for_every_argument(name):
    command = getattr(importlib.import_module(f"fdml.cli.{name}"), name)
    assert inspect.getdoc(command)
    text = " ".join(succeed(name, "--help").split())
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.annotation is typer.Context:
            continue
        assert parameter.annotation.__metadata__[0].help, parameter.name
    assert inspect.getdoc(command).split(".")[0][:30] in text


def commands(name):
    """A command, or those of a group, by the words by which each is called."""
    found = getattr(importlib.import_module(f"fdml.cli.{name}"), name)
    if name not in GROUPS:
        return {(name,): found}
    return {(name, each.name or each.callback.__name__): each.callback for each in found.registered_commands}


def help_texts(command):
    """Of a command and of its options, but for those that `--help` does not show."""
    yield inspect.getdoc(command)
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.annotation is not typer.Context and not parameter.annotation.__metadata__[0].hidden:
            yield parameter.annotation.__metadata__[0].help


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_text_loses_a_word(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for words, command in commands(name).items():
        printed = set(succeed(*words, "--help").replace("`", "").split())
        said = {word for text in help_texts(command) for word in text.replace("`", "").split()}
        assert said <= printed, sorted(said - printed)


def test_a_word_in_square_brackets_is_in_the_help():
    assert "[policy]" in succeed("up", "--help")
    assert "[align]" in succeed("join", "--help")


FIGURES = [name for name in SINGLE if name not in ("new", "data", "up", "report", "watch", "endpoint")]


@pytest.mark.parametrize("name", FIGURES)
def test_every_command_that_ends_in_figures_can_write_them_to_a_file(name):
    command = getattr(importlib.import_module(f"fdml.cli.{name}"), name)
    assert "json" in inspect.signature(command).parameters


@pytest.mark.parametrize("name", ["join", "serve"])
def test_both_sides_of_a_run_can_log_their_events(name):
    command = getattr(importlib.import_module(f"fdml.cli.{name}"), name)
    assert "log" in inspect.signature(command).parameters


def test_help_lists_all_commands():
    text = succeed("--help")
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("words", [("plan",), ("no-such-command",), ("status", "--no-such-option"), ("join",)])
def test_wrong_usage_exits_with_2(words):
    assert call(*words).exit_code == 2


def test_an_error_of_ours_is_one_line_and_exit_code_1(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fdml", "status", str(tmp_path / "federation.toml")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value).startswith("fdml: ")
    assert "federation.toml" in str(ended.value)


@pytest.mark.parametrize("words", [("runs", "list"), ("runs", "approve", "first"), ("model", "list")])
def test_outside_a_partys_folder_the_option_that_names_it_is_named(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fail(SettingsError, *words) == (
        "there is no file 'party.toml'; give its path: DIR/party.toml, or --party DIR/party.toml"
    )


@pytest.mark.parametrize(("name", "new"), [("plan", "fdml budget plan"), ("bench", "python -m benchmarks")])
def test_a_renamed_command_names_the_new_one(name, new):
    result = subprocess.run([sys.executable, "-m", "fdml", name], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr == f"fdml: the command {name!r} is now called `{new}`\n"


@pytest.mark.parametrize("command", ["serve", "join", "align", "simulate"])
def test_starting_over_is_gone_and_the_way_out_is_named(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fdml", command, "x.toml", "--fresh"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("nothing is overwritten: give the run a new name in run.toml\n")
