"""FBGEMM: PrunedMapCPU turns ids into row numbers, a table batched embedding (TBE) copies or pools the rows.

PrunedMapCPU takes ids of 32 bits only, so this peer has smaller keys than ours. Variant `f32` looks rows up one by one,
`int8` pools bags of int8 rows to their float32 sum; `int8_rows` does so by row number, without the map.
"""

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen
from protocol import filled, serve

BITS_31 = (1 << 31) - 1


def ids_31(numbers):
    """Distinct ids of 31 bits."""
    return (numbers.astype(np.int64) * 0x2545F491) & BITS_31


def prepare(spec):
    """A TBE of one table and the map before it."""
    torch.set_num_threads(1)
    int8 = spec.variant.startswith("int8")
    tbe = IntNBitTableBatchedEmbeddingBagsCodegen(
        [("table", spec.rows, spec.dim, SparseType.INT8 if int8 else SparseType.FP32, EmbeddingLocation.HOST)],
        device="cpu", pooling_mode=PoolingMode.SUM, output_dtype=SparseType.FP32)
    tbe.fill_random_weights()
    weights = tbe.split_embedding_weights()[0]
    for numbers, rows in filled(spec):
        first = int(numbers[0])
        part = slice(first, first + len(numbers))
        if int8:
            packed = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(torch.from_numpy(rows))
            weights[0][part] = packed[:, :spec.dim]
            if weights[1] is not None:
                # Scale and bias as float16, before the codes or after them, whichever this release keeps.
                scale = packed[:, spec.dim:].contiguous().view(torch.float32).to(torch.float16)
                weights[1][part] = scale.view(torch.uint8)
        else:
            weights[0][part] = torch.from_numpy(rows).view(torch.uint8)
    bags = torch.arange(0, spec.batch + 1, spec.bag, dtype=torch.int32)
    if spec.variant == "int8_rows":
        return (lambda numbers: torch.from_numpy(numbers.astype(np.int32)), lambda rows: tbe(rows, bags).numpy(),
                "row numbers, no ids")
    places = torch.classes.fbgemm.PrunedMapCPU()
    places.insert(_to_torch(np.arange(spec.rows)), torch.arange(spec.rows, dtype=torch.int32),
                  torch.tensor([0, spec.rows], dtype=torch.int32), 1)
    whole = torch.tensor([0, spec.batch], dtype=torch.int32)
    return _to_torch, lambda ids: tbe(places.lookup(ids, whole), bags).numpy(), "ids of 31 bits"


def _to_torch(numbers):
    return torch.from_numpy(ids_31(numbers).astype(np.int32))


if __name__ == "__main__":
    with torch.inference_mode():
        serve(prepare)
