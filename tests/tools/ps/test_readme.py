"""The README's five commands, run as they are written."""

import subprocess

from tests.tools.ps.conftest import CHECKOUT

HEADING = "## A parameter server in five commands"


def commands() -> list[str]:
    section = (CHECKOUT / "README.md").read_text(encoding="utf-8").split(HEADING)[1]
    return section.split("```")[1].strip().splitlines()


def test_the_five_commands_work_as_written(tmp_path, shell_environment):
    lines = commands()
    assert len(lines) == 5
    script = "\n".join(["set -euo pipefail", "trap 'kill %1; wait %1' EXIT", *lines])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=shell_environment, capture_output=True, text=True,
                          timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "published epoch 1" in done.stdout
    rows = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if line.split()[:1] and
            line.split()[0] in ("7", "9999", "-1")}
    assert rows == {"7": "hit", "9999": "hit", "-1": "default"}, done.stdout
