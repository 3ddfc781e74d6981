"""What every suite may use: the shared data beside the checkout, the C++ test binaries, and the marker `slow`."""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PROVING = os.environ.get("LAMBDA_SVC_PROVE") == "1"


def pytest_collection_modifyitems(items):
    """Tests marked `slow` run in `make prove` only, which sets LAMBDA_SVC_PROVE=1."""
    if PROVING:
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs in `make prove` (LAMBDA_SVC_PROVE=1)"))


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the source tree."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of shared data and models: $LAMBDA_SVC_SHARED, else `shared` beside the checkout."""
    folder = Path(os.environ.get("LAMBDA_SVC_SHARED") or CHECKOUT.parent / "shared")
    if not folder.is_dir():
        pytest.skip("no shared data: put `shared` beside the checkout or set LAMBDA_SVC_SHARED to it")
    return folder


@pytest.fixture(scope="session")
def native_build():
    """A function from a name such as `paramserver_test` to that C++ binary, built by `make native-tests`.

    LAMBDA_SVC_NATIVE_BUILD names another build folder.
    """
    folder = Path(os.environ.get("LAMBDA_SVC_NATIVE_BUILD") or CHECKOUT / "build" / "tests")

    def find(name: str) -> Path:
        for path in sorted(folder.rglob(name)):
            if path.is_file() and os.access(path, os.X_OK):
                return path
        pytest.skip(f"{name} is not built in {folder}: run `make native-tests`")

    return find
