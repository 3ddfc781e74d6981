"""jemalloc is preloaded when the system has it, once, and never against the user's will."""

import json
import subprocess
import sys

import pytest

from tools.launcher import SWITCH, find_jemalloc, preload_environment


def test_the_library_is_found_in_the_first_folder_that_has_it(tmp_path):
    assert find_jemalloc([str(tmp_path)]) is None
    library = tmp_path / "libjemalloc.so.2"
    library.touch()
    assert find_jemalloc(["/nowhere", str(tmp_path)]) == library


def test_the_environment_changes_once(tmp_path):
    library = tmp_path / "libjemalloc.so.2"
    first = preload_environment({"A": "1"}, library)
    assert first.pop("MALLOC_CONF").startswith("background_thread:true")
    assert first == {"A": "1", "LD_PRELOAD": str(library)}
    assert preload_environment(first, library) is None


def test_options_of_the_caller_s_own_stay(tmp_path):
    environment = preload_environment({"MALLOC_CONF": "narenas:1"}, tmp_path / "libjemalloc.so.2")
    assert environment["MALLOC_CONF"] == "narenas:1"


def test_other_preloads_stay(tmp_path):
    environment = preload_environment({"LD_PRELOAD": "other.so"}, tmp_path / "libjemalloc.so.2")
    assert environment["LD_PRELOAD"].endswith("libjemalloc.so.2:other.so")


def test_the_switch_and_a_missing_library_change_nothing(tmp_path):
    assert preload_environment({SWITCH: "0"}, tmp_path / "libjemalloc.so.2") is None
    assert preload_environment({}, None) is None


def reported_allocator(environment) -> str:
    command = [sys.executable, "-m", "tools.cli", "doctor", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    return next(item["value"] for item in json.loads(result.stdout) if item["name"] == "allocator")


def test_the_command_starts_again_under_jemalloc(bare_environment):
    if find_jemalloc() is None:
        pytest.skip("no libjemalloc on this machine: install libjemalloc2")
    assert reported_allocator(bare_environment) == "jemalloc"


def test_the_command_runs_without_jemalloc(bare_environment):
    assert reported_allocator({**bare_environment, SWITCH: "0"}) == "glibc"
