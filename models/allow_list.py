"""The ops that a pushed graph may hold. What is not listed is refused: a graph computes scores, and does nothing else.

Refused are, among others, ops that read, write or list files (ReadFile, SaveV2, ImmutableConst, data sets), talk to
others (RPC, collectives, send and receive), run code (PyFunc and the like), print, or keep what later runs see (queues,
stages, variables' assignments). Ops that read a file of the package (a vocabulary's, a checkpoint's) are allowed where
the path that they read is one that the loader feeds.

No tensorflow here: the bytes are read as a protocol buffer's, so that a service can check what it is given before any
library parses it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .errors import GraphError, OpRefusedError

__all__ = ["ALLOWED", "PATH_INPUTS", "check_graph"]

_ELEMENTWISE = """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 Angle ApproximateEqual Asin Asinh Atan Atan2 Atanh BesselI0 BesselI0e
    BesselI1 BesselI1e Betainc BiasAdd BiasAddV1 BitwiseAnd BitwiseOr BitwiseXor Cast Ceil CheckNumerics
    CheckNumericsV2 ClipByValue Complex ComplexAbs Conj Cos Cosh Digamma Div DivNoNan Elu Equal Erf Erfc Erfinv Exp
    Expm1 FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel Floor FloorDiv FloorMod
    Greater GreaterEqual Igamma Igammac Imag Inv Invert IsFinite IsInf IsNan LeakyRelu LeftShift Less LessEqual Lgamma
    Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual
    Polygamma PopulationCount Pow Real RealDiv Reciprocal Relu Relu6 RightShift Rint Round Rsqrt Select SelectV2 Selu
    Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Square SquaredDifference Sub Tan Tanh ToBool TruncateDiv
    TruncateMod Xdivy Xlog1py Xlogy Zeta"""
_PRODUCTS = """
    AvgPool AvgPool3D BatchMatMul BatchMatMulV2 BatchMatMulV3 BlockLSTM BlockLSTMV2 Cholesky Conv2D
    Conv2DBackpropInput Conv3D Conv3DBackpropInputV2 Cross DepthwiseConv2dNative Einsum FusedBatchNorm
    FusedBatchNormV2 FusedBatchNormV3 GRUBlockCell L2Loss LRN LSTMBlockCell MatMul MatrixDeterminant
    MatrixInverse MatrixSolve MatrixTriangularSolve MaxPool MaxPool3D MaxPoolV2 SoftmaxCrossEntropyWithLogits
    SparseMatMul SparseSoftmaxCrossEntropyWithLogits SparseTensorDenseMatMul _FusedBatchNormEx _FusedConv2D
    _FusedMatMul _MklFusedMatMul _MklMatMul _MklNativeFusedMatMul"""
_REDUCTIONS = """
    All Any ApproxTopK ArgMax ArgMin Bincount BroadcastArgs Bucketize Cumprod Cumsum CumulativeLogsumexp DenseBincount
    EuclideanNorm HistogramFixedWidth InTopK InTopKV2 InvertPermutation ListDiff LowerBound Max Mean Min NthElement
    Prod ReduceJoin SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum Sum TopK TopKV2 Unique UniqueV2
    UniqueWithCounts UniqueWithCountsV2 UnsortedSegmentJoin UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
    UnsortedSegmentSum UpperBound Where"""
_ARRAYS = """
    BatchToSpace BatchToSpaceND Bitcast BroadcastGradientArgs BroadcastTo Concat ConcatOffset ConcatV2
    ConjugateTranspose Const DepthToSpace Diag DiagPart DynamicPartition DynamicStitch EnsureShape ExpandDims Fill
    Gather GatherNd GatherV2 GuaranteeConst Identity IdentityN LinSpace MatrixBandPart MatrixDiag MatrixDiagPart
    MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3
    MirrorPad OneHot OnesLike Pack Pad PadV2 ParallelConcat ParallelDynamicStitch Placeholder PlaceholderV2
    PlaceholderWithDefault PreventGradient Range Rank Reshape Reverse ReverseSequence ReverseV2 Roll ScatterNd
    ScatterNdNonAliasingAdd Shape ShapeN Size Slice Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth Split SplitV
    Squeeze StopGradient StridedSlice TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
    TensorScatterUpdate TensorStridedSliceUpdate Tile Transpose Unpack UnravelIndex ZerosLike"""
_SPARSE_AND_RAGGED = """
    DenseCountSparseOutput DenseToDenseSetOperation DenseToSparseSetOperation RaggedBincount RaggedCountSparseOutput
    RaggedCross RaggedFillEmptyRows RaggedGather RaggedRange RaggedTensorFromVariant RaggedTensorToSparse
    RaggedTensorToTensor RaggedTensorToVariant SetSize SparseAdd SparseBincount SparseConcat SparseCountSparseOutput
    SparseCross SparseCrossHashed SparseCrossV2 SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul
    SparseFillEmptyRows SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseReorder
    SparseReshape SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
    SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumWithNumSegments SparseSlice SparseSoftmax
    SparseSparseMaximum SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseToDense SparseToSparseSetOperation"""
_STRINGS_AND_EXAMPLES = """
    AsString DecodeBase64 DecodeCSV DecodePaddedRaw DecodeRaw EditDistance EncodeBase64 Fingerprint ParseExample
    ParseExampleV2 ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample
    RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength
    StringLower StringNGrams StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode
    UnicodeScript UnicodeTranscode UnsortedSegmentJoin"""
_CONTROL = """
    Assert Case ControlTrigger EmptyTensorList Enter Exit FakeParam If LoopCond Merge NextIteration NoOp
    OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone PartitionedCall RefEnter RefExit RefIdentity
    RefMerge RefNextIteration RefSelect RefSwitch StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile
    Switch TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3
    TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3 TensorListConcatV2 TensorListElementShape
    TensorListFromTensor TensorListGather TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack
    TensorListReserve TensorListResize TensorListSetItem TensorListStack While"""
_RANDOM = """
    Multinomial RandomStandardNormal RandomUniform RandomUniformInt StatelessMultinomial StatelessRandomGetAlg
    StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormal StatelessRandomNormalV2
    StatelessRandomUniform StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2
    StatelessTruncatedNormal StatelessTruncatedNormalV2 TruncatedNormal"""
_VARIABLES_AND_TABLES = """
    DisableCopyOnRead HashTable HashTableV2 InitializeTable InitializeTableFromTextFile InitializeTableFromTextFileV2
    InitializeTableV2 IsVariableInitialized LookupTableFind LookupTableFindV2 LookupTableImportV2 LookupTableSize
    LookupTableSizeV2 MutableDenseHashTableV2 MutableHashTableV2 ReadVariableOp ResourceGather ResourceGatherNd
    RestoreV2 VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2"""

ALLOWED = frozenset(" ".join((_ELEMENTWISE, _PRODUCTS, _REDUCTIONS, _ARRAYS, _SPARSE_AND_RAGGED, _STRINGS_AND_EXAMPLES,
                              _CONTROL, _RANDOM, _VARIABLES_AND_TABLES)).split())
PATH_INPUTS: Mapping[str, int] = {"InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1, "RestoreV2": 0}
"""Allowed ops that read a file, and which of their inputs is its path."""
_ASSIGNS = frozenset({"Assign", "AssignVariableOp"})
_PASSING = frozenset({"Identity"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_TAG_MAX = 0xFFFFFFFF


@dataclass
class _Node:
    name: str = ""
    op: str = ""
    inputs: list[str] = field(default_factory=list)
    functions: list[tuple[str, str]] = field(default_factory=list)  # (attribute, function that it names)


@dataclass
class _Body:
    """The nodes of a function, or those of the graph itself, which has no name and no arguments."""

    name: str = ""
    arguments: list[str] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)

    def node(self, name: str) -> _Node | None:
        """The node of that name, if there is just one."""
        found = [node for node in self.nodes if node.name == name]
        return found[0] if len(found) == 1 else None


def check_graph(raw: bytes, paths: Collection[str] = (), assigns: bool = False) -> None:
    """Refuses a serialised GraphDef for the first node, in the graph or in any function of its library, whose op is not
    allowed.

    `paths` names the graph's nodes that hold paths of the package, or are fed with them; only such a path may reach an
    op of PATH_INPUTS, in a function through the arguments of all its calls. `assigns` allows assignments of variables,
    as restoring and initialising need them. Raises OpRefusedError naming node and op, GraphError for bytes that are no
    GraphDef.
    """
    try:
        bodies = _bodies(memoryview(raw))
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise GraphError(f"{len(raw)} bytes came that are no whole GraphDef: {error}") from error
    allowed = ALLOWED | (_ASSIGNS if assigns else frozenset())
    for body in bodies:
        for node in body.nodes:
            # A function called as if it were an op is refused, too: it could bear the name of one that is not allowed.
            if node.op not in allowed:
                raise OpRefusedError(node.name, node.op, "not an op that a pushed graph may hold", body.name)
            if node.op in PATH_INPUTS and not _is_fed(bodies, body, node, PATH_INPUTS[node.op], paths, set()):
                problem = f"may only read a file whose path is fed at load; the fed ones are {sorted(paths) or 'none'}"
                raise OpRefusedError(node.name, node.op, problem, body.name)


def _is_fed(bodies: list[_Body], body: _Body, node: _Node, at: int, paths: Collection[str],
            seen: set[tuple[str, str]]) -> bool:
    """Whether input `at` of a node is one of the paths, handed on and nothing else."""
    while len(node.inputs) > at and (body.name, node.inputs[at]) not in seen:
        seen.add((body.name, node.inputs[at]))
        name = node.inputs[at].removesuffix(":0")
        if not body.name and name in paths:
            return True
        if name in body.arguments:
            return _calls_are_fed(bodies, body, body.arguments.index(name), paths, seen)
        source = body.node(name.partition(":")[0])
        if source is None or source.op not in _PASSING:
            return False
        node, at = source, 0
    return False


def _calls_are_fed(bodies: list[_Body], body: _Body, at: int, paths: Collection[str],
                   seen: set[tuple[str, str]]) -> bool:
    """Whether a function is called in the plain way only, and each time with a path as argument `at`."""
    users = [(one, node, attribute) for one in bodies for node in one.nodes
             for attribute, function in node.functions if function == body.name]
    return bool(users) and [one.name for one in bodies].count(body.name) == 1 and all(
        node.op in _CALLS and attribute == "f" and _is_fed(bodies, one, node, at, paths, set(seen))
        for one, node, attribute in users)


def _bodies(raw: memoryview) -> list[_Body]:
    """The graph itself, and each function of its library.

        GraphDef { 1 node: NodeDef, 2 library { 1 function { 1 signature { 1 name, 2 input_arg { 1 name } },
                                                             3 node_def: NodeDef } } }
        NodeDef  { 1 name, 2 op, 3 input, 5 attr { 1 key, 2 AttrValue } }
        AttrValue { 1 list { 9 func }, 10 func { 1 name } }
    """
    bodies = [_Body()]
    for number, value in _fields(raw):
        if number == 1:
            bodies[0].nodes.append(_node(value))
        elif number == 2:
            bodies.extend(_function(one) for inner, one in _fields(value) if inner == 1)
    return bodies


def _function(raw: memoryview) -> _Body:
    body = _Body(" ")  # one without a name is still no graph
    for number, value in _fields(raw):
        if number == 1:
            for inner, one in _fields(value):
                if inner == 1:
                    body.name = str(one, "utf-8") or " "
                elif inner == 2:
                    body.arguments.append(_text(one))
        elif number == 3:
            body.nodes.append(_node(value))
    return body


def _node(raw: memoryview) -> _Node:
    node = _Node()
    for number, value in _fields(raw):
        if number == 1:
            node.name = str(value, "utf-8")
        elif number == 2:
            node.op = str(value, "utf-8")
        elif number == 3:
            node.inputs.append(str(value, "utf-8"))
        elif number == 5:
            key = _text(value)
            for inner, one in _fields(value):
                if inner == 2:
                    node.functions.extend((key, name) for name in _named_functions(one))
    return node


def _named_functions(attribute: memoryview) -> Iterator[str]:
    for number, value in _fields(attribute):
        if number == 10:
            yield _text(value)
        elif number == 1:
            for inner, one in _fields(value):
                if inner == 9:
                    yield _text(one)


def _text(raw: memoryview) -> str:
    """Field 1 of a message, as text."""
    found = ""
    for number, value in _fields(raw):
        if number == 1:
            found = str(value, "utf-8")
    return found


def _fields(raw: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each field with a length; others are passed over. Raises ValueError, IndexError."""
    at, end = 0, len(raw)
    while at < end:
        tag, at = _varint(raw, at)
        if tag > _TAG_MAX:  # Some parsers keep its low 32 bits only, which would be another field.
            raise ValueError("a field's number is too large")
        number, kind = tag >> 3, tag & 7
        if kind == 2:
            size, at = _varint(raw, at)
            if at + size > end:
                raise ValueError("a field is longer than what holds it")
            yield number, raw[at:at + size]
            at += size
        elif kind == 0:
            _, at = _varint(raw, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
            if at > end:
                raise ValueError("a field is longer than what holds it")
        else:
            raise ValueError(f"a field of unknown kind {kind}")
        if number == 0:
            raise ValueError("a field without a number")


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number of more than ten bytes")
