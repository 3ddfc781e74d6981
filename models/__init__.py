"""What offline jobs use: data, model definitions, training, export, packages and push.

Importing this package, `models.package` and `models.push` never imports tensorflow; `models.train`, `models.export`,
`models.passes` and `models.zoo` do.
"""

__all__: list[str] = []
