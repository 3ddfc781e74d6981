"""The wheel: what it ships, and that it works away from the checkout."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

PACKAGES = ("lambda_svc", "paramserver", "feature_store", "models", "tools")
CORES = ("paramserver._core", "feature_store._core", "lambda_svc._core")
# Module that loads an extension which links pyarrow's libraries, and what it calls that extension.
FLIGHT = "from paramserver.native_flight import native as core"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, checkout) -> Path:
    """A wheel built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    result = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_wheel_ships_python_and_cores_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    unwanted = [name for name in names
                if name.endswith((".cc", ".h", ".inl", "CMakeLists.txt", ".sh")) or "csrc" in name or "test" in name]
    assert not unwanted
    assert {name.split("/")[0] for name in names if "/_core." in name} == {core.split(".")[0] for core in CORES}
    assert [name.split("/")[0] for name in names if "/_flight." in name] == ["paramserver"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_extension_looks_for_libraries_on_the_machine_that_built_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                assert sysconfig.get_path("purelib").encode() not in archive.read(name), name


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_wheel_works_elsewhere(wheel, tmp_path, bare_environment):
    target = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    path = os.pathsep.join([str(target), sysconfig.get_path("purelib")])
    environment = {**bare_environment, "PYTHONPATH": path}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(*words: str) -> str:
        result = subprocess.run(words, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return result.stdout

    # -S leaves this environment's own .pth files out, which would lead back to the checkout.
    assert "serve" in run(sys.executable, "-S", str(target / "bin" / "lambda-svc"), "--help")
    for statement in [*(f"import {core} as core" for core in CORES), FLIGHT]:
        where = run(sys.executable, "-S", "-c", f"{statement}; print(core.__file__)").strip()
        assert Path(where).is_relative_to(target), where
