"""The main job end to end on a small generated set, in a process of its own: it trains, serves, ranks and proves."""

import re
import subprocess
import sys

SMALL = """
import sys
from pathlib import Path
from rich.console import Console
from models.movielens import generated_dataset
from tools import demo
from tools.demo import offline

offline.load = lambda source, seed: generated_dataset(ratings=6_000, users=120, items=300, seed=seed)
sys.exit(demo.run(demo.DemoOptions(data="generated", users=2, keep=Path(sys.argv[1])), Console(width=100)))
"""


def test_the_demo_trains_serves_ranks_and_proves(tmp_path):
    done = subprocess.run([sys.executable, "-c", SMALL, str(tmp_path)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    assert "6,000 ratings, 120 users, 300 films" in out and "generated" in out
    for step in range(1, 7):
        assert f"{step}/6" in out
    assert out.count("top 10") == 2 and "300 candidates" in out and "Everything holds" in out
    assert re.search(r"bytes copied\s+0\s+holds", out)
    assert len(re.findall(r" holds\s*$", out, re.MULTILINE)) == 5 and "does not hold" not in out
    assert (tmp_path / "repository/din_mmoe/1/manifest.json").is_file()
    assert not done.stderr.strip(), done.stderr
