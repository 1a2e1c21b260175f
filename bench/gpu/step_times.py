"""Step time of decoders on a GPU, by tokens in the batch, context and precision. Needs
PyTorch only.

    python bench/gpu/step_times.py --hardware h100 --out bench/gpu/rows/h100.yaml

Builds a few layers of each shape with random weights, runs decoding steps from CUDA
graphs, and scales the time to all layers. A step has `batch` requests with `tokens` new
tokens each (1: plain decoding, K + 1: verification of K drafted tokens), and each
request attends to `context` cached tokens. bench/accuracy/score.py holds the rows in
bench/gpu/rows against the roofline model. Two minutes on an H100.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TextIO

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


@dataclass(frozen=True)
class Shape:
    """A decoder: the dimensions of its layers, and how many it has; rows of its output
    layer, 0 without.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    experts: int = 0
    used: int = 0
    vocabulary: int = 0


#: Dimensions from the models' config.json. Only heads of drafters have their output
#: layer.
SHAPES = {
    name: Shape(**numbers)
    for name, numbers in json.loads(
        Path(__file__).with_name("shapes.json").read_text("utf-8")
    ).items()
}


class Linear:
    """A matrix in bf16, or in fp8 with one scale (`torch._scaled_mm`)."""

    def __init__(self, rows: int, columns: int, precision: str, device: str) -> None:
        weight = (
            torch.randn(rows, columns, device=device, dtype=torch.bfloat16)
            / columns**0.5
        )
        self.fp8 = precision == "fp8"
        if self.fp8:
            weight = weight.to(torch.float8_e4m3fn)
        self.weight = weight
        self.one = torch.ones((), device=device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product with `x`."""
        if not self.fp8:
            return functional.linear(x, self.weight)
        rows = x.shape[0]
        padded = functional.pad(x, (0, 0, 0, -rows % 16)).to(torch.float8_e4m3fn)
        out = torch._scaled_mm(
            padded, self.weight.t(), self.one, self.one, out_dtype=torch.bfloat16
        )
        return out[:rows]


class Mlp:
    """A gated MLP."""

    def __init__(self, shape: Shape, precision: str, device: str) -> None:
        self.up = Linear(2 * shape.intermediate, shape.hidden, precision, device)
        self.down = Linear(shape.hidden, shape.intermediate, precision, device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output for `x`."""
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Experts:
    """A mixture of experts in bf16: one grouped product for all experts, as engines do
    it.
    """

    def __init__(self, shape: Shape, device: str) -> None:
        self.shape = shape
        kind = {"device": device, "dtype": torch.bfloat16}
        self.up = (
            torch.randn(shape.experts, 2 * shape.intermediate, shape.hidden, **kind)
            / shape.hidden**0.5
        )
        self.down = (
            torch.randn(shape.experts, shape.hidden, shape.intermediate, **kind)
            / shape.intermediate**0.5
        )

    def __call__(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Return the output for `x`; `chosen` has the experts of each token, shape
        (tokens, used).
        """
        order = chosen.flatten().argsort(stable=True)
        rows = order // self.shape.used
        # Not bincount: that reads its result on the CPU, which a graph cannot hold.
        counts = torch.zeros(self.shape.experts, device=x.device, dtype=torch.int32)
        counts.index_add_(0, chosen.flatten(), torch.ones_like(rows, dtype=torch.int32))
        ends = counts.cumsum(0, dtype=torch.int32)
        gate, up = functional.grouped_mm(
            x[rows], self.up.transpose(1, 2), offs=ends
        ).chunk(2, dim=-1)
        down = functional.grouped_mm(
            functional.silu(gate) * up, self.down.transpose(1, 2), offs=ends
        )
        return torch.zeros_like(x).index_add_(0, rows, down / self.shape.used)


class Layer:
    """Attention over a cache, and an MLP or experts; norms included, rotary embeddings
    left out.
    """

    def __init__(self, shape: Shape, precision: str, device: str) -> None:
        self.shape = shape
        size = shape.head_size * (shape.heads + 2 * shape.kv_heads)
        self.qkv = Linear(size, shape.hidden, precision, device)
        self.out = Linear(
            shape.hidden, shape.heads * shape.head_size, precision, device
        )
        self.mlp = None
        self.experts = None
        if shape.experts:
            self.experts = Experts(shape, device)
            self.router = Linear(shape.experts, shape.hidden, "bf16", device)
        else:
            self.mlp = Mlp(shape, precision, device)
        self.norm = torch.ones(shape.hidden, device=device, dtype=torch.bfloat16)

    def __call__(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Return the layer's output for `x`; the cache has the shape (batch, heads,
        context, head size).
        """
        shape = self.shape
        batch = keys.shape[0]
        tokens = x.shape[0] // batch
        normed = functional.rms_norm(x, (shape.hidden,), self.norm)
        qkv = self.qkv(normed).view(batch, tokens, -1, shape.head_size).transpose(1, 2)
        query, _, _ = qkv.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        groups = shape.heads // shape.kv_heads
        # Query heads that share a key head become further queries: no copy of the
        # cache.
        query = query.reshape(batch, shape.kv_heads, groups * tokens, shape.head_size)
        attended = functional.scaled_dot_product_attention(query, keys, values)
        attended = attended.reshape(
            batch, shape.heads, tokens, shape.head_size
        ).transpose(1, 2)
        x = x + self.out(attended.reshape(batch * tokens, -1))
        normed = functional.rms_norm(x, (shape.hidden,), self.norm)
        if self.experts is None:
            assert self.mlp is not None
            return x + self.mlp(normed)
        # Random weights: tokens go to experts evenly and independently of each other.
        return x + self.experts(
            normed, self.router(normed).topk(shape.used, dim=1).indices
        )


class Decoder:
    """Some layers of a shape, and its output layer if it has one."""

    def __init__(self, shape: Shape, precision: str, layers: int, device: str) -> None:
        self.shape = shape
        self.device = device
        self.stack = [
            Layer(shape, precision, device) for _ in range(min(layers, shape.layers))
        ]
        if shape.vocabulary:
            self.output = Linear(shape.vocabulary, shape.hidden, precision, device)
        else:
            self.output = None

    def cache(
        self, batch: int, context: int
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return keys and values for each layer."""
        size = (batch, self.shape.kv_heads, context, self.shape.head_size)
        kind = {"device": self.device, "dtype": torch.bfloat16}
        return [
            (torch.randn(size, **kind), torch.randn(size, **kind)) for _ in self.stack
        ]

    def step_seconds(
        self, tokens: int, cache: list[tuple[torch.Tensor, torch.Tensor]], repeats: int
    ) -> float:
        """Return the median time of a step over all layers of the shape."""
        batch = cache[0][0].shape[0]
        x = torch.randn(
            batch * tokens, self.shape.hidden, device=self.device, dtype=torch.bfloat16
        )

        def layers() -> None:
            y = x
            for layer, (keys, values) in zip(self.stack, cache, strict=True):
                y = layer(y, keys, values)

        seconds = (
            median_seconds(layers, repeats, self.device)
            * self.shape.layers
            / len(self.stack)
        )
        if self.output is not None:
            output = self.output
            seconds += median_seconds(lambda: output(x), repeats, self.device)
        return seconds


def median_seconds(step: Callable[[], object], repeats: int, device: str) -> float:
    """Return the median time of a step: of a CUDA graph by the GPU's clock, else by the
    processor's.
    """
    if device != "cuda":
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        return statistics.median(times)
    stream = torch.cuda.Stream()
    # outside the graph: libraries allocate and choose at first use
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    events = []
    for _ in range(repeats):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in events) / 1000


def _output(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return nullcontext(sys.stdout)
    return Path(name).open("w", encoding="utf-8")


def main() -> int:
    """Write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--hardware",
        required=True,
        metavar="NAME",
        help="as in economics/hardware.toml",
    )
    parser.add_argument(
        "--shape",
        nargs="+",
        choices=sorted(SHAPES),
        default=sorted(set(SHAPES) - {"tiny"}),
    )
    parser.add_argument(
        "--precision", nargs="+", choices=("bf16", "fp8"), default=["bf16"]
    )
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4, 16, 64, 128])
    parser.add_argument("--tokens", nargs="+", type=int, default=[1, 2, 4, 6, 8])
    parser.add_argument("--context", nargs="+", type=int, default=[500, 4000, 16000])
    parser.add_argument(
        "--layers", type=int, default=4, help="layers to measure (default: 4)"
    )
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument(
        "--out", default="-", help="file for the rows, - for standard output"
    )
    args = parser.parse_args()
    if args.device == "cuda":
        name = torch.cuda.get_device_name()
        attention = SDPBackend.FLASH_ATTENTION
    else:
        name = "cpu"
        attention = SDPBackend.MATH
    begin = time.monotonic()
    with (
        _output(args.out) as out,
        torch.inference_mode(),
        sdpa_kernel(attention),
    ):
        out.write(
            f"hardware: {args.hardware}\ndevice: {name}\ntorch: {torch.__version__}\n"
        )
        out.write(f"date: {time.strftime('%Y-%m-%d', time.gmtime())}\n")
        out.write("# Milliseconds of a step, by tokens of each request in it.\nrows:\n")
        for shape, precision in product(args.shape, args.precision):
            if SHAPES[shape].experts and precision != "bf16":
                print(f"{shape}: experts are measured in bf16 only", file=sys.stderr)
                continue
            decoder = Decoder(SHAPES[shape], precision, args.layers, args.device)
            for batch, context in product(args.batch, args.context):
                try:
                    cache = decoder.cache(batch, context)
                    times = [
                        decoder.step_seconds(tokens, cache, args.repeats)
                        for tokens in args.tokens
                    ]
                except torch.OutOfMemoryError:
                    print(
                        f"{shape} {precision} {batch} x {context}: out of memory",
                        file=sys.stderr,
                    )
                    continue
                pairs = zip(args.tokens, times, strict=True)
                took = ", ".join(
                    f"{tokens}: {seconds * 1e3:.4f}" for tokens, seconds in pairs
                )
                conditions = (
                    f"shape: {shape}, precision: {precision}, batch: {batch}, context: "
                    f"{context}"
                )
                out.write(f"- {{{conditions}, milliseconds: {{{took}}}}}\n")
                out.flush()
            print(
                f"{time.monotonic() - begin:.0f} s: {shape} {precision} done",
                file=sys.stderr,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
