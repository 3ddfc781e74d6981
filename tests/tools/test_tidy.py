"""Every rule of tidy can fail: small trees, each with one thing wrong, and the same tree put right."""

from pathlib import Path

import pytest

from tools.tidy import check
from tools.tidy.cxx import functions
from tools.tidy.tree import Tree

LONG_FUNCTION = "def work():\n" + "    x = 1\n" * 70 + "    return x\n"
LONG_STAGE = '"""Stage."""\n\n\ndef rank():\n' + "    x = 1\n" * 40 + "    return x\n\n\nrank()\n"
CXX_FUNCTION = "namespace a {\nint f(int x) {\n" + "  ++x;\n" * 70 + "  return x;\n}\n}  // namespace a\n"
MODULE = '"""A module."""\n'


def problems(root: Path, files: dict[str, str]) -> set[str]:
    """The rules that a tree of files breaks, as `path rule`."""
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return {f"{problem.path} {problem.rule}" for problem in check(Tree(root))}


BAD = {
    "file too long": ({"tools/a.py": MODULE + "\n" * 500}, "tools/a.py file-size"),
    "function too long": ({"tests/a.py": LONG_FUNCTION}, "tests/a.py function-size"),
    "stage too long": ({"lambda_svc/ranking.py": LONG_STAGE}, "lambda_svc/ranking.py function-size"),
    "C++ function too long": ({"paramserver/csrc/a.cc": CXX_FUNCTION}, "paramserver/csrc/a.cc function-size"),
    "line too long": ({"tools/a.sh": "#" * 121 + "\n"}, "tools/a.sh line-length"),
    "paramserver imports feature_store": (
        {"paramserver/a.py": MODULE + "import feature_store\n\nprint(feature_store)\n"}, "paramserver/a.py import"),
    "the service imports training": (
        {"lambda_svc/a.py": MODULE + "import models.train\n\nprint(models)\n"}, "lambda_svc/a.py import"),
    "a private name of another package": (
        {"tools/a.py": MODULE + "from lambda_svc.server import _hidden\n\nprint(_hidden)\n"}, "tools/a.py import"),
    "an unlisted name of another package": (
        {"lambda_svc/server.py": MODULE + "OPEN = 1\n",
         "tools/a.py": MODULE + "from lambda_svc.server import OPEN\n\nprint(OPEN)\n"}, "tools/a.py import"),
    "grpc outside server and client": (
        {"lambda_svc/plan.py": MODULE + "import grpc\n\nprint(grpc)\n"}, "lambda_svc/plan.py import"),
    "the service imports tensorflow": (
        {"lambda_svc/a.py": MODULE + "def f():\n    import tensorflow\n    return tensorflow\n\n\nf()\n"},
        "lambda_svc/a.py import"),
    "the package reader imports tensorflow": (
        {"models/package.py": MODULE + "import tensorflow\n\nprint(tensorflow)\n"}, "models/package.py import"),
    "an include across packages": (
        {"paramserver/csrc/a.h": "", "feature_store/csrc/a.cc": '#include "paramserver/csrc/a.h"\n'},
        "feature_store/csrc/a.cc include"),
    "a relative include": ({"paramserver/csrc/a.cc": '#include "a.h"\n'}, "paramserver/csrc/a.cc include"),
    "Python outside bindings": (
        {"paramserver/csrc/a.cc": "#include <nanobind/nanobind.h>\n"}, "paramserver/csrc/a.cc include"),
    "a C++ file nobody builds": ({"paramserver/csrc/a.cc": "int a;\n"}, "paramserver/csrc/a.cc dead-file"),
    "a header nobody includes": ({"paramserver/csrc/a.h": "int a;\n"}, "paramserver/csrc/a.h dead-file"),
    "a package without __all__": ({"tools/b/__init__.py": MODULE}, "tools/b/__init__.py public-names"),
    "a ghost in __all__": ({"tools/a.py": MODULE + '__all__ = ["gone"]\n'}, "tools/a.py public-names"),
    "no docstring": (
        {"tools/a.py": MODULE + '__all__ = ["f"]\n\n\ndef f():\n    return 1\n'}, "tools/a.py docstring"),
    "no docstring of a method": (
        {"tools/a.py": MODULE + '__all__ = ["C"]\n\n\nclass C:\n    """C."""\n\n    def m(self):\n        return 1\n'},
        "tools/a.py docstring"),
    "a vague name": ({"tools/utils.py": MODULE}, "tools/utils.py vague-name"),
    "a machine's path": ({"README.md": "cd " + "/ro" + "ot/x\n"}, "README.md machine-path"),
    "a registry's address": ({"a.txt": "py" + "pi.org\n"}, "a.txt registry-host"),
    "a muffled failure": ({"a.sh": "false |" + "| true\n"}, "a.sh muffled"),
    "unfinished work": ({"a.sh": "# TO" + "DO\n"}, "a.sh leftover"),
    "a skip without reason": ({"tests/a.py": "import pytest\n\npytest.skip" + "()\n"}, "tests/a.py skip"),
    "a binary": ({"paramserver/_core.so": ""}, "paramserver/_core.so binary"),
    "an unused import": ({"tools/a.py": MODULE + "import os\n"}, "tools/a.py F401"),
    "an undefined name": ({"tools/a.py": MODULE + "print(ghost)\n"}, "tools/a.py F821"),
    "a syntax error": ({"tools/a.py": "def\n"}, "tools/a.py invalid-syntax"),
    "a dead function": ({"tools/a.py": MODULE + "def _f():\n    return 1\n"}, "tools/a.py dead-code"),
    "a function only tests use": (
        {"tools/a.py": MODULE + "def f():\n    return 1\n",
         "tests/a.py": "from tools.a import f\n\nf()\n"}, "tools/a.py dead-code"),
    "a dead method": (
        {"tools/a.py": MODULE + "class A:\n    def m(self):\n        return 1\n\n\nA()\n"}, "tools/a.py dead-code"),
    "generated code that is not there": ({"a/b.proto": 'syntax = "proto3";\n'}, "a/b_pb2.py proto"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_tree_fails(tmp_path, name):
    files, expected = BAD[name]
    found = problems(tmp_path, files)
    assert expected in found, found


def test_a_good_tree_passes(tmp_path):
    files = {
        "paramserver/__init__.py": MODULE + "from paramserver.table import Table\n\n__all__ = [\"Table\"]\n",
        "paramserver/table.py": MODULE + '__all__ = ["Table"]\n\n\nclass Table:\n    """A table."""\n',
        "paramserver/csrc/a.h": "#include <vector>\n",
        "paramserver/csrc/a.cc": '#include "paramserver/csrc/a.h"\n',
        "paramserver/csrc/CMakeLists.txt": "lambda_package(paramserver SOURCES a.cc)\n",
        "lambda_svc/server.py": MODULE + "import grpc\nfrom paramserver import Table\n\nprint(grpc, Table)\n",
    }
    assert problems(tmp_path, files) == set()


def test_functions_of_cxx_are_measured_from_their_head_to_their_brace():
    text = 'struct S {\n  int a(\n      int x) {\n    if (x) { return 1; }\n    return "}{"[0];\n  }\n};\n'
    assert list(functions(text)) == [("a", 2, 5)]


def test_generated_code_that_differs_is_named(tmp_path):
    service = "message M {}\nservice S { rpc C(M) returns (M); }\n"
    proto = f'syntax = "proto3";\n{service}'
    files = {"a/b.proto": proto, "a/b_pb2.py": "old", "a/b_pb2.pyi": "old", "a/b_pb2_grpc.py": "old"}
    assert {"a/b_pb2.py proto", "a/b_pb2.pyi proto", "a/b_pb2_grpc.py proto"} <= problems(tmp_path, files)
