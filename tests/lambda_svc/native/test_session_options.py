"""Session options are equal on the wire to TensorFlow's own messages."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

from lambda_svc.session.tensorflow import TensorFlowOptions


def test_options_read_the_same_in_tensorflow_s_own_messages(graphs):
    # A pool of its own: TensorFlow's messages stay out of this process's default one.
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((graphs / "config.descriptors").read_bytes()).file:
        pool.Add(file)
    options = TensorFlowOptions(intra_op_threads=3, inter_op_threads=2, device_count={"CPU": 4})

    def read(name: str, data: bytes):
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name)).FromString(data)
        assert len(unknown_fields.UnknownFieldSet(message)) == 0
        return message

    config = read("tensorflow.ConfigProto", options.config_proto())
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (3, 2)
    assert dict(config.device_count) == {"CPU": 4}
    assert config.experimental.executor_type == "SINGLE_THREADED_EXECUTOR"
    assert read("tensorflow.RunOptions", options.run_options()).inter_op_thread_pool == -1


def test_precision_and_xla_are_tensorflow_s_own_switches(graphs):
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((graphs / "config.descriptors").read_bytes()).file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.ConfigProto"))
    for precision, xla in (("f32", False), ("bf16", True)):
        config = message.FromString(TensorFlowOptions(precision=precision, xla=xla).config_proto())
        assert len(unknown_fields.UnknownFieldSet(config)) == 0
        rewriter = config.graph_options.rewrite_options
        assert rewriter.auto_mixed_precision_onednn_bfloat16 == (precision == "bf16")
        assert config.graph_options.optimizer_options.global_jit_level == xla
        assert config.experimental.executor_type == ("" if xla else "SINGLE_THREADED_EXECUTOR")


def test_lanes_of_a_card_are_virtual_devices_that_share_its_memory(graphs):
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((graphs / "config.descriptors").read_bytes()).file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.ConfigProto"))
    options = TensorFlowOptions(lanes=3, device="gpu", device_bytes_max=3 << 30)
    config = message.FromString(options.config_proto())
    assert len(unknown_fields.UnknownFieldSet(config)) == 0
    [card] = config.gpu_options.experimental.virtual_devices
    assert list(card.memory_limit_mb) == [1024.0] * 3 and not config.allow_soft_placement
    assert options.devices() == [f"/device:GPU:{lane}" for lane in range(3)]
    logical = message.FromString(TensorFlowOptions(lanes=3).config_proto())
    assert dict(logical.device_count) == {"CPU": 3} and not logical.HasField("gpu_options")
