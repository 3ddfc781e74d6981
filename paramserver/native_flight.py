"""The native half of the wire: the extension module `_flight`, loaded once the libraries that it links are.

`import pyarrow.flight` loads libarrow and libarrow_flight; the dynamic loader then finds them by name, wherever the
pyarrow wheel lies.
"""

import pyarrow.flight  # noqa: F401  (loads the libraries)

from paramserver import _flight as native

__all__ = ["native"]
