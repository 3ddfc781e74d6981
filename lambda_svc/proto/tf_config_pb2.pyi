from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionConfig(_message.Message):
    __slots__ = ("device_count", "intra_op_parallelism_threads", "inter_op_parallelism_threads", "gpu_options", "graph_options", "experimental")
    class VirtualDevices(_message.Message):
        __slots__ = ("memory_limit_mb",)
        MEMORY_LIMIT_MB_FIELD_NUMBER: _ClassVar[int]
        memory_limit_mb: _containers.RepeatedScalarFieldContainer[float]
        def __init__(self, memory_limit_mb: _Optional[_Iterable[float]] = ...) -> None: ...
    class GpuExperimental(_message.Message):
        __slots__ = ("virtual_devices",)
        VIRTUAL_DEVICES_FIELD_NUMBER: _ClassVar[int]
        virtual_devices: _containers.RepeatedCompositeFieldContainer[SessionConfig.VirtualDevices]
        def __init__(self, virtual_devices: _Optional[_Iterable[_Union[SessionConfig.VirtualDevices, _Mapping]]] = ...) -> None: ...
    class GpuOptions(_message.Message):
        __slots__ = ("allow_growth", "experimental")
        ALLOW_GROWTH_FIELD_NUMBER: _ClassVar[int]
        EXPERIMENTAL_FIELD_NUMBER: _ClassVar[int]
        allow_growth: bool
        experimental: SessionConfig.GpuExperimental
        def __init__(self, allow_growth: _Optional[bool] = ..., experimental: _Optional[_Union[SessionConfig.GpuExperimental, _Mapping]] = ...) -> None: ...
    class Experimental(_message.Message):
        __slots__ = ("executor_type",)
        EXECUTOR_TYPE_FIELD_NUMBER: _ClassVar[int]
        executor_type: str
        def __init__(self, executor_type: _Optional[str] = ...) -> None: ...
    class OptimizerOptions(_message.Message):
        __slots__ = ("global_jit_level",)
        GLOBAL_JIT_LEVEL_FIELD_NUMBER: _ClassVar[int]
        global_jit_level: int
        def __init__(self, global_jit_level: _Optional[int] = ...) -> None: ...
    class RewriterConfig(_message.Message):
        __slots__ = ("auto_mixed_precision_onednn_bfloat16",)
        AUTO_MIXED_PRECISION_ONEDNN_BFLOAT16_FIELD_NUMBER: _ClassVar[int]
        auto_mixed_precision_onednn_bfloat16: int
        def __init__(self, auto_mixed_precision_onednn_bfloat16: _Optional[int] = ...) -> None: ...
    class GraphOptions(_message.Message):
        __slots__ = ("optimizer_options", "rewrite_options")
        OPTIMIZER_OPTIONS_FIELD_NUMBER: _ClassVar[int]
        REWRITE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
        optimizer_options: SessionConfig.OptimizerOptions
        rewrite_options: SessionConfig.RewriterConfig
        def __init__(self, optimizer_options: _Optional[_Union[SessionConfig.OptimizerOptions, _Mapping]] = ..., rewrite_options: _Optional[_Union[SessionConfig.RewriterConfig, _Mapping]] = ...) -> None: ...
    class DeviceCountEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DEVICE_COUNT_FIELD_NUMBER: _ClassVar[int]
    INTRA_OP_PARALLELISM_THREADS_FIELD_NUMBER: _ClassVar[int]
    INTER_OP_PARALLELISM_THREADS_FIELD_NUMBER: _ClassVar[int]
    GPU_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    GRAPH_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENTAL_FIELD_NUMBER: _ClassVar[int]
    device_count: _containers.ScalarMap[str, int]
    intra_op_parallelism_threads: int
    inter_op_parallelism_threads: int
    gpu_options: SessionConfig.GpuOptions
    graph_options: SessionConfig.GraphOptions
    experimental: SessionConfig.Experimental
    def __init__(self, device_count: _Optional[_Mapping[str, int]] = ..., intra_op_parallelism_threads: _Optional[int] = ..., inter_op_parallelism_threads: _Optional[int] = ..., gpu_options: _Optional[_Union[SessionConfig.GpuOptions, _Mapping]] = ..., graph_options: _Optional[_Union[SessionConfig.GraphOptions, _Mapping]] = ..., experimental: _Optional[_Union[SessionConfig.Experimental, _Mapping]] = ...) -> None: ...

class RunOptions(_message.Message):
    __slots__ = ("trace_level", "inter_op_thread_pool")
    TRACE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    INTER_OP_THREAD_POOL_FIELD_NUMBER: _ClassVar[int]
    trace_level: int
    inter_op_thread_pool: int
    def __init__(self, trace_level: _Optional[int] = ..., inter_op_thread_pool: _Optional[int] = ...) -> None: ...
