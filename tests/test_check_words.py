import subprocess
import sys
from pathlib import Path

import pytest

from scripts.check_words import (
    LIST,
    MOST_FUNCTION_LINES,
    MOST_LINES,
    ROOT,
    Retired,
    check,
    empty_name,
    files_to_check,
    too_long,
)


@pytest.fixture(scope="module")
def retired() -> Retired:
    return Retired.read(LIST)


def finds(retired: Retired, path: str, text: str) -> list[str]:
    return [str(find) for find in retired.in_file(path, text)]


def test_a_retired_class_is_reported_with_its_line_and_the_new_name(retired):
    assert finds(retired, "fdml/party/loop.py", "import x\nx.Homework()\n") == [
        "fdml/party/loop.py:2: 'Homework'; use TrainingTask"
    ]


def test_class_names_are_matched_by_case_and_as_whole_names(retired):
    assert finds(retired, "fdml/party/loop.py", "host = Hostess(sentinel, sent, last)\n") == []


def test_a_class_name_that_is_an_english_word_is_fine_in_prose(retired):
    assert finds(retired, "fdml/party/loop.py", '"""Last of all, memory is given back."""\n') == []


def test_a_retired_name_in_backticks_is_reported_in_prose_and_in_docstrings(retired):
    expected = "use RunState"
    assert [find.instead for find in retired.in_file("docs/a.md", "See `Host`.\n")] == [expected]
    assert [find.instead for find in retired.in_file("fdml/a.py", '"""See `Host`."""\n')] == [expected]


@pytest.mark.parametrize("text", ["self._lesson = 1\n", "class LessonPlan: ...\n", "NO_LESSON = 0\n", "# a lesson\n"])
def test_a_private_word_is_found_in_parts_of_names_and_in_comments(retired, text):
    assert [find.instead for find in retired.in_file("fdml/a.py", text)] == ["use block update"]


def test_a_word_inside_another_word_is_not_that_word(retired):
    assert (
        finds(retired, "docs/a.md", "The keyboard's timestamps, onboarding and trialling: noticed lessening.\n") == []
    )


def test_the_bulletin_board_keeps_its_name(retired):
    assert finds(retired, "fdml/align/bulletin.py", "class BulletinBoard: ...\nbulletin_board = 1\n") == []
    assert finds(retired, "docs/a.md", "The bulletin board of the server.\n") == []
    assert len(finds(retired, "docs/a.md", "The board of the server.\n")) == 1


def test_the_lines_of_a_long_docstring_are_counted(retired):
    text = '"""First.\n\nThe verdict.\n"""\n'
    assert [find.line for find in retired.in_file("fdml/a.py", text)] == [3]


def test_a_name_that_is_retired_in_one_folder_is_fine_in_another(retired):
    text = "turn = 1\n"
    assert len(finds(retired, "fdml/protocol/schedule.py", text)) == 1
    assert finds(retired, "benchmarks/a9a.py", text) == []


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("run `fdml plan`", "use fdml budget plan"),
        ("run `fdml bench speed`", "use python -m benchmarks"),
        ("in fdml/exchange/wire.py", "use the folders of docs/architecture.md"),
        ("see benchmarks/speed.json", "use benchmarks/results/NAME.json"),
        ('when = "end"', "use evaluation.every"),
        ("rows whose id stands there before", "use say where or what it is"),
    ],
)
def test_old_commands_paths_settings_and_idioms_are_found(retired, text, instead):
    assert [find.instead for find in retired.in_file("docs/a.md", text + "\n")] == [instead]


def test_current_commands_and_paths_pass(retired):
    text = "`fdml budget`, `python -m benchmarks speed`, fdml/protocol/wire.py, benchmarks/results/speed.json\n"
    assert finds(retired, "docs/a.md", text) == []


def test_a_file_named_by_a_private_word_is_found(retired):
    assert finds(retired, "simulator/world.py", "") == ["simulator/world.py:1: 'world'; use simulation"]


def test_the_names_of_a_protobuf_file_are_checked(retired):
    assert len(finds(retired, "fdml/protocol/wire.proto", "message Verdict { int64 stamp = 1; }\n")) == 2


def test_old_settings_may_be_named_where_they_are_refused_and_nowhere_else(retired):
    text = 'RENAMED = {"patience": "peer_timeout_seconds"}\n'
    assert finds(retired, "fdml/settings/file.py", text) == []
    assert len(finds(retired, "fdml/cli/join.py", text)) == 1


def test_a_literal_that_names_a_stream_of_random_numbers_may_stay(retired):
    assert finds(retired, "fdml/privacy/masks.py", 'PURPOSE = "trial"\n') == []
    assert len(finds(retired, "fdml/privacy/masks.py", 'PURPOSE = "a trial"\n')) == 1


def test_documents_about_the_old_names_may_name_them(retired):
    assert finds(retired, "docs/compatibility.md", "`patience` is now `peer_timeout_seconds`.\n") == []


def test_no_new_name_is_itself_retired(retired):
    new = [name for name in retired.identifiers.values() if name.isidentifier()]
    assert [name for name in new if name in retired.identifiers] == []


def test_every_allowed_file_and_place_exists(retired):
    named = {*retired.files, *(place.partition(":")[0] for place in retired.places)}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_a_file_of_the_largest_length_passes_and_a_longer_one_does_not():
    assert list(too_long("fdml/a.py", "x = 1\n" * MOST_LINES)) == []
    (find,) = too_long("fdml/a.py", "x = 1\n" * (MOST_LINES + 1))
    assert str(find).startswith(f"fdml/a.py:1: {MOST_LINES + 1} lines")


def test_a_function_of_the_largest_length_passes_and_a_longer_one_does_not():
    longest = "def f():\n" + "    x = 1\n" * MOST_FUNCTION_LINES
    assert list(too_long("fdml/a.py", longest)) == []
    (find,) = too_long("fdml/a.py", "\n" + longest + "    x = 1\n")
    assert find.line == 2
    assert "f has 61 lines" in str(find)


def test_generated_code_is_left_alone_and_the_packages_are_looked_at():
    names = {path.relative_to(ROOT).as_posix() for path in files_to_check(ROOT)}
    assert {"fdml/party/loop.py", "README.md", "docs/glossary.md", "fdml/protocol/wire.proto"} <= names
    assert not [name for name in names if "_pb2" in name]


def test_a_tree_is_checked_whole(tmp_path, retired):
    folder = tmp_path / "fdml"
    folder.mkdir()
    (folder / "a.py").write_text("class Diary: ...\n" + "x = 1\n" * MOST_LINES)
    assert [find.path for find in check(tmp_path, retired)] == ["fdml/a.py", "fdml/a.py"]


def test_the_command_ends_with_1_where_something_is_found_and_says_where(tmp_path):
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("check_words.py", "retired_words.toml"):
        (scripts / name).write_bytes((Path(ROOT) / "scripts" / name).read_bytes())
    assert _run(scripts).returncode == 0
    (tmp_path / "README.md").write_text("The courier.\n")
    ended = _run(scripts)
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == ["README.md:1: 'courier'; use delivery", "1 to change: . 1"]


def _run(scripts: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(scripts / "check_words.py")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", ["utils", "estimator_base", "test_helpers", "run_manager"])
def test_a_file_whose_name_says_nothing_is_found(name):
    (find,) = empty_name(f"fdml/party/{name}.py")
    assert str(find).startswith(f"fdml/party/{name}.py:1: a file called '{name.split('_')[-1]}'; name it by what is")


def test_a_word_that_only_begins_like_an_empty_one_is_no_empty_name():
    assert not list(empty_name("benchmarks/baselines.py"))
