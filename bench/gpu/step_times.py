"""Step time of decoders on a GPU, by tokens in the batch, context and precision. Needs PyTorch only.

    python bench/gpu/step_times.py --hardware h100 --out bench/gpu/rows/h100.yaml

Builds a few layers of each shape with random weights, runs decoding steps from CUDA graphs, and scales the
time to all layers. A step has `batch` requests with `tokens` new tokens each (1: plain decoding, K + 1:
verification of K drafted tokens), and each request attends to `context` cached tokens. One row a step time;
bench/accuracy/score.py holds the rows in bench/gpu/rows against the roofline model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """A decoder: the dimensions of its layers, and how many it has."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    experts: int = 0
    used: int = 0


#: Dimensions from the models' config.json. Embeddings and output layer are left out.
SHAPES = {
    name: Shape(**numbers)
    for name, numbers in json.loads(Path(__file__).with_name("shapes.json").read_text("utf-8")).items()
}


class Linear:
    """A matrix in bf16, or in fp8 with one scale (`torch._scaled_mm`)."""

    def __init__(self, rows: int, columns: int, precision: str, device: str) -> None:
        weight = torch.randn(rows, columns, device=device, dtype=torch.bfloat16) / columns**0.5
        self.fp8 = precision == "fp8"
        self.weight = weight.to(torch.float8_e4m3fn) if self.fp8 else weight
        self.one = torch.ones((), device=device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product with `x`."""
        if not self.fp8:
            return functional.linear(x, self.weight)
        rows = x.shape[0]
        padded = functional.pad(x, (0, 0, 0, -rows % 16)).to(torch.float8_e4m3fn)
        out = torch._scaled_mm(padded, self.weight.t(), self.one, self.one, out_dtype=torch.bfloat16)
        return out[:rows]


class Layer:
    """Attention over a cache, and an MLP or experts; norms included, rotary embeddings left out."""

    def __init__(self, shape: Shape, batch: int, context: int, precision: str, device: str) -> None:
        self.shape, self.batch = shape, batch
        size = shape.head_size * (shape.heads + 2 * shape.kv_heads)
        self.qkv = Linear(size, shape.hidden, precision, device)
        self.out = Linear(shape.hidden, shape.heads * shape.head_size, precision, device)
        count = shape.experts or 1
        self.up = [Linear(2 * shape.intermediate, shape.hidden, precision, device) for _ in range(count)]
        self.down = [Linear(shape.hidden, shape.intermediate, precision, device) for _ in range(count)]
        cache = (batch, shape.kv_heads, context, shape.head_size)
        self.keys = torch.randn(cache, device=device, dtype=torch.bfloat16)
        self.values = torch.randn(cache, device=device, dtype=torch.bfloat16)
        self.norm = torch.ones(shape.hidden, device=device, dtype=torch.bfloat16)

    def __call__(self, x: torch.Tensor, routes: list[torch.Tensor]) -> torch.Tensor:
        """Return the layer's output for `x`, with these routes to the experts."""
        shape, batch = self.shape, self.batch
        tokens = x.shape[0] // batch
        normed = functional.rms_norm(x, (shape.hidden,), self.norm)
        qkv = self.qkv(normed).view(batch, tokens, -1, shape.head_size).transpose(1, 2)
        query, _, _ = qkv.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        groups = shape.heads // shape.kv_heads
        # Query heads that share a key head become further queries: no copy of the cache.
        query = query.reshape(batch, shape.kv_heads, groups * tokens, shape.head_size)
        attended = functional.scaled_dot_product_attention(query, self.keys, self.values)
        attended = attended.reshape(batch, shape.heads, tokens, shape.head_size).transpose(1, 2)
        x = x + self.out(attended.reshape(batch * tokens, -1))
        normed = functional.rms_norm(x, (shape.hidden,), self.norm)
        if not shape.experts:
            return x + self._mlp(0, normed)
        out = torch.zeros_like(x)
        for expert, rows in enumerate(routes):
            if len(rows):
                out.index_add_(0, rows, self._mlp(expert, normed[rows]))
        return x + out

    def _mlp(self, number: int, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.up[number](x).chunk(2, dim=-1)
        return self.down[number](functional.silu(gate) * up)


def step_seconds(
    shape: Shape,
    batch: int,
    tokens: int,
    context: int,
    precision: str,
    layers: int,
    repeats: int,
    device: str,
) -> float:
    """Return the median time of a step over all layers of `shape`, measured with `layers` of them."""
    stack = [Layer(shape, batch, context, precision, device) for _ in range(layers)]
    x = torch.randn(batch * tokens, shape.hidden, device=device, dtype=torch.bfloat16)
    routes: list[torch.Tensor] = []
    if shape.experts:  # each token to different experts, evenly at random; fixed, so that a graph can hold it
        chosen = torch.rand(batch * tokens, shape.experts).topk(shape.used, dim=1).indices
        routes = [(chosen == expert).any(dim=1).nonzero()[:, 0].to(device) for expert in range(shape.experts)]

    def step() -> None:
        y = x
        for layer in stack:
            y = layer(y, routes)

    step()
    run = step
    if device == "cuda":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    times = []
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * shape.layers / layers


def main() -> int:
    """Write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hardware", required=True, metavar="NAME", help="as in economics/hardware.yaml")
    parser.add_argument("--shape", nargs="+", choices=sorted(SHAPES), default=sorted(set(SHAPES) - {"tiny"}))
    parser.add_argument("--precision", nargs="+", choices=("bf16", "fp8"), default=["bf16"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4, 16, 64, 128])
    parser.add_argument("--tokens", nargs="+", type=int, default=[1, 2, 4, 6, 8])
    parser.add_argument("--context", nargs="+", type=int, default=[500, 4000])
    parser.add_argument("--layers", type=int, default=4, help="layers to measure (default: 4)")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="-", help="file for the rows, - for standard output")
    args = parser.parse_args()
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    made = f"hardware: {args.hardware}, device: {name!r}, torch: {torch.__version__!r}"
    rows = []
    with torch.inference_mode():
        for shape in args.shape:
            for precision in args.precision:
                for batch in args.batch:
                    for context in args.context:
                        for tokens in args.tokens:
                            try:
                                seconds = step_seconds(
                                    SHAPES[shape],
                                    batch,
                                    tokens,
                                    context,
                                    precision,
                                    args.layers,
                                    args.repeats,
                                    args.device,
                                )
                            except torch.OutOfMemoryError:
                                torch.cuda.empty_cache()
                                continue
                            what = f"shape: {shape}, precision: {precision}, batch: {batch}, tokens: {tokens}"
                            took = f"context: {context}, milliseconds: {seconds * 1e3:.4f}"
                            rows.append(f"- {{{made}, {what}, {took}}}\n")
                            print(rows[-1], end="", file=sys.stderr)
    if args.out == "-":
        sys.stdout.writelines(rows)
    else:
        Path(args.out).write_text("".join(rows), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
