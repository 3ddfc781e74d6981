"""Start-up notices are held back; nothing else is."""

import subprocess
import sys

WRITES = """
import os
from models.notices import without_notices
try:
    with without_notices():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n")
        os.write(2, b"I0000 00:00:1.5  20919 port.cc:153] oneDNN custom operations are on.\\n")
        os.write(2, b"W0000 00:00:1.5  20919 x.cc:1] a warning\\n")
        os.write(2, b"Image not found\\nE0000 an error, no newline")
        raise OSError("inside")
except OSError as error:
    os.write(2, b"\\nafter: " + str(error).encode())
"""


def test_only_notices_are_held_back():
    done = subprocess.run([sys.executable, "-c", WRITES], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ("W0000 00:00:1.5  20919 x.cc:1] a warning\nImage not found\nE0000 an error, no newline"
                           "\nafter: inside")


def test_a_process_without_stderr_is_left_alone():
    script = "import os\nos.close(2)\nfrom models.notices import without_notices\nwith without_notices(): print('ran')"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout == "ran\n"
