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
_TAG_MAX = 0xFFFFFFFF


@dataclass
class _Node:
    name: str = ""
    op: str = ""
    inputs: list[str] = field(default_factory=list)


def check_graph(raw: bytes, paths: Collection[str] = (), assigns: bool = False) -> None:
    """Refuses a serialised GraphDef for the first node, in the graph or in any function of its library, whose op is not
    allowed.

    `paths` names the nodes that the loader feeds with paths of the package; only such a path may reach an op of
    PATH_INPUTS. `assigns` allows assignments of variables, as restoring and initialising need them. Raises
    OpRefusedError naming node and op, GraphError for bytes that are no GraphDef.
    """
    try:
        nodes, functions = _graph(memoryview(raw))
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise GraphError(f"{len(raw)} bytes came that are no whole GraphDef: {error}") from error
    allowed = ALLOWED | (_ASSIGNS if assigns else frozenset())
    for function, body in [("", nodes), *functions]:
        by_name = {node.name: node for node in body}
        for node in body:
            # A function called as if it were an op is refused, too: it could bear the name of one that is not allowed.
            if node.op not in allowed:
                raise OpRefusedError(node.name, node.op, "not an op that a pushed graph may hold", function)
            if node.op in PATH_INPUTS and (function or not _is_fed(node, by_name, paths)):
                problem = f"may only read a file whose path is fed at load; the fed ones are {sorted(paths) or 'none'}"
                raise OpRefusedError(node.name, node.op, problem, function)


def _is_fed(node: _Node, by_name: Mapping[str, _Node], paths: Collection[str]) -> bool:
    at, seen = PATH_INPUTS[node.op], set()
    while len(node.inputs) > at:
        name = node.inputs[at].removesuffix(":0")
        if name in paths:
            return True
        node, at = by_name.get(name, _Node()), 0
        if node.op not in _PASSING or name in seen:
            return False
        seen.add(name)
    return False


def _graph(raw: memoryview) -> tuple[list[_Node], list[tuple[str, list[_Node]]]]:
    """The nodes of a GraphDef, and of each function of its library.

        GraphDef { 1 node: NodeDef, 2 library { 1 function { 1 signature { 1 name }, 3 node_def: NodeDef } } }
        NodeDef  { 1 name, 2 op, 3 input }
    """
    nodes, functions = [], []
    for number, value in _fields(raw):
        if number == 1:
            nodes.append(_node(value))
        elif number == 2:
            functions.extend(_function(one) for inner, one in _fields(value) if inner == 1)
    return nodes, functions


def _function(raw: memoryview) -> tuple[str, list[_Node]]:
    name, nodes = "", []
    for number, value in _fields(raw):
        if number == 1:
            for inner, text in _fields(value):
                name = str(text, "utf-8") if inner == 1 else name
        elif number == 3:
            nodes.append(_node(value))
    return name, nodes


def _node(raw: memoryview) -> _Node:
    node = _Node()
    for number, value in _fields(raw):
        if number == 1:
            node.name = str(value, "utf-8")
        elif number == 2:
            node.op = str(value, "utf-8")
        elif number == 3:
            node.inputs.append(str(value, "utf-8"))
    return node


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
