"""What offline jobs use: data, model definitions, training, export, packages and push.

Importing this package, `models.package` and `models.push` never imports tensorflow; `models.train`, `models.export`,
`models.passes` and `models.zoo` do.
"""

import os

# TensorFlow writes start-up notices to stderr unless told before its first import; errors still show.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

__all__: list[str] = []
