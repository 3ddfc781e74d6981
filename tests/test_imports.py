"""The import rules of the house at run time: what each package drags in, seen from a fresh interpreter."""

import json
import subprocess
import sys

import pytest

PROJECT = ("lambda_svc", "paramserver", "feature_store", "models", "tools", "tensorflow", "grpc")


def loaded_by(statement: str) -> set[str]:
    """The project's packages, tensorflow and grpc as far as `statement` loaded them, submodules included."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    names = json.loads(result.stdout.splitlines()[-1])
    return {name for name in names if name.split(".")[0] in PROJECT}


def roots(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("package", ["paramserver", "feature_store"])
def test_the_stores_stand_alone(package):
    assert roots(loaded_by(f"import {package}")) == {package}


def test_the_reference_implementations_stand_alone():
    assert roots(loaded_by("import paramserver.reference")) == {"paramserver"}
    assert roots(loaded_by("import feature_store.reference")) == {"feature_store"}


def test_packages_can_be_read_without_tensorflow():
    assert "tensorflow" not in roots(loaded_by("import models.package"))
    assert "lambda_svc" not in roots(loaded_by("import models.package"))


def test_the_service_has_no_tensorflow_package():
    names = loaded_by("import lambda_svc, lambda_svc.server")
    assert "tensorflow" not in roots(names)
    assert "tools" not in roots(names)
    of_models = {name for name in names if name.startswith("models.")}
    assert of_models <= {"models.package", "models.manifest", "models.variants", "models.errors", "models.allow_list",
                          "models.signature_input"}


def test_the_command_line_starts_light():
    names = roots(loaded_by("import tools.cli"))
    assert names == {"tools"}
