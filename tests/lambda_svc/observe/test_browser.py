"""The status page in a real browser: it shows what it should, obeys no hostile name, and comes back by itself.

Pictures stay in build/observe/ for people to look at.
"""

from __future__ import annotations

import dataclasses
import shutil
import struct
import subprocess
from collections import Counter
from html import escape
from pathlib import Path

import pytest

from lambda_svc.errors import NotFound
from lambda_svc.lifecycle import VersionStatus
from lambda_svc.observe.endpoint import Endpoint, Page
from lambda_svc.observe.page import render
from tests.lambda_svc.live_worlds import until
from tests.lambda_svc.world import MODEL, World

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH, HEIGHT = 1280, 1100
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> list[str]:
    """How a headless browser is started."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)} (Debian: apt-get install chromium)")
    profile = tmp_path_factory.mktemp("browser")

    return [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}"]


@pytest.fixture
def browser(command):
    """A function from arguments to what the browser prints."""
    def look(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return look


def picture(browser, checkout: Path, name: str, address: str) -> None:
    """Takes it and looks whether it is one, of the window's size, with more on it than a blank page."""
    path = checkout / "build/observe" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    browser(f"--screenshot={path}", address)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (WIDTH, HEIGHT)
    assert len(data) > 20_000


def test_a_browser_shows_what_serves_and_why_a_version_failed(browser, observe, checkout):
    observed = observe(extra=f"models: {{{MODEL}: {{labels: {{shown: 1}}}}}}\n")
    World().write_package(observed.home / "repository", version=2)
    damaged = observed.home / "repository" / MODEL / "2" / "graph/item.pb"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    observed.keeper.look()
    for _ in range(50):
        observed.client.rank("rank", 1, list(World().items))
    with pytest.raises(NotFound):
        observed.client.rank("rank", 1, [1], version=9)
    address = f"http://127.0.0.1:{observed.observation.port}/?refresh=off"
    shown = browser("--dump-dom", address)
    for text in ('class="state serving">serving<', 'class="state failed">failed<', "graph/item.pb: damaged",
                 "NOT_FOUND", "ready"):
        assert text in shown
    picture(browser, checkout, "status.png", address)


def test_hostile_names_stay_text(browser, observe, checkout):
    document = observe().status()
    document["scenarios"][0] |= {"scenario": EVIL, "model": EVIL, "labels": {EVIL: 1}}
    document["versions"].append(dataclasses.asdict(VersionStatus(EVIL, 2, "failed", EVIL, 1, 1.0)))
    hostile = Endpoint("127.0.0.1:0", {"/": lambda _: Page(render(document, False), "text/html; charset=utf-8")})
    try:
        shown = browser("--dump-dom", f"http://127.0.0.1:{hostile.port}/")
        picture(browser, checkout, "hostile.png", f"http://127.0.0.1:{hostile.port}/")
    finally:
        hostile.stop()
    assert "<img" not in shown and "<script" not in shown and "<title>owned" not in shown
    assert escape(EVIL, quote=False) in shown


def test_the_server_forbids_scripts_even_where_one_got_in(browser):
    body = b"<!doctype html><title>calm</title><p>here</p><script>document.title='owned'</script>"
    careless = Endpoint("127.0.0.1:0", {"/": lambda _: Page(body, "text/html; charset=utf-8")})
    try:
        shown = browser("--dump-dom", f"http://127.0.0.1:{careless.port}/")
    finally:
        careless.stop()
    assert "<title>calm</title>" in shown and "here" in shown


def test_the_page_comes_back_by_itself(command, observe):
    document, asked = observe().status(), Counter()

    def page(_: str) -> Page:
        asked["/"] += 1
        return Page(render(document), "text/html; charset=utf-8")

    alive = Endpoint("127.0.0.1:0", {"/": page})
    looking = subprocess.Popen([*command, "--remote-debugging-port=0", f"http://127.0.0.1:{alive.port}/"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: asked["/"] >= 3, "the page was not asked for again")
    finally:
        looking.terminate()
        looking.wait(60)
        alive.stop()
