"""Which ops treat the parts of a tensor alike, so that a pass may move a repetition past them."""

__all__ = ["BROADCASTING", "LAST_AXIS", "PASSING", "UNARY"]

UNARY = frozenset({
    "Abs", "Cast", "Ceil", "Cos", "Elu", "Erf", "Exp", "Expm1", "Floor", "IsFinite", "IsInf", "IsNan", "LeakyRelu",
    "Log", "Log1p", "LogicalNot", "Neg", "Reciprocal", "Relu", "Relu6", "Rint", "Round", "Rsqrt", "Selu", "Sigmoid",
    "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Square", "Tanh",
})
"""Element by element."""

BROADCASTING = frozenset({
    "Add", "AddV2", "BiasAdd", "ClipByValue", "Div", "DivNoNan", "Equal", "FloorDiv", "FloorMod", "Greater",
    "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "MulNoNan",
    "NotEqual", "Pow", "RealDiv", "SelectV2", "SquaredDifference", "Sub",
})
"""Element by element over inputs of several shapes, dimensions of size 1 being repeated."""

LAST_AXIS = frozenset({"LogSoftmax", "Softmax"})
"""Over the last axis, the others side by side."""

PASSING = frozenset({"CheckNumerics", "Identity", "PreventGradient", "Snapshot", "StopGradient"})
"""Their first input as it is."""
