#!/usr/bin/env python3
"""plan - what a token costs on a card, by arithmetic: the tables of the README, "Speed: the plan".

usage: plugins/cuda/plan.py [--check | --write]     prints them; compares or replaces those in the README

Launches are those of the real graph (test/test_cuda_calls.c counts them), bytes are those of the shapes,
registers those that ptxas says (test/cuda_kernels.py compares); the rest are assumptions, named here.
"""
import math
import pathlib
import sys

README = pathlib.Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- made by plan.py -->\n", "<!-- end -->\n"

# ---- the card: H200 --------------------------------------------------------------------------------

BANDWIDTH = 4.8e12        # bytes a second
PROCESSORS, CLOCK = 132, 1.75e9
REGISTERS, WARPS_MOST = 65536, 64  # of a processor
ISSUE = 4 * 32            # lanes that begin an instruction, a cycle and processor

# ---- assumptions -----------------------------------------------------------------------------------

LATENCY_US = 0.7          # of memory under load
REACHED = 0.85            # of the bandwidth by whatever reads in order
ISSUED = 0.7              # of the cycles that begin an instruction
GAP_US = 1.2              # between two kernels of a graph that wait for each other
CONTEXT = 1024            # positions before the token; kv in F32

# ---- the kernels -----------------------------------------------------------------------------------

DTYPES = {  # bytes a weight; of matvec: registers, bytes that a lane has under way, instructions a weight
    "f32": (4, 56, 64, 2.4),
    "f16": (2, 56, 64, 3.0),
    "q8_0": (34 / 32, 47, 32, 5.6),
    "q4_1": (20 / 32, 47, 16, 6.0),
}
LAYER = ["norm", "matvec q k v", "rope, append", "attend_row", "attend_merge", "matvec out, add",
         "norm", "matvec gate, up, GLU", "matvec down, add"]
OUTSIDE = ["embed", "take_rows", "norm", "matvec output", "argmax", "argmax_merge"]
LEAST_US = {  # that a kernel takes however little it reads: loads that wait for each other, reductions
    "norm": 2.0, "rope, append": 1.2, "attend_row": 3.0, "attend_merge": 1.8, "embed": 1.2,
    "take_rows": 1.0, "argmax": 1.6, "argmax_merge": 1.6,
}
MATVEC_US = 1.6

MODELS = {
    "SmolLM2-135M": {"layers": 30, "width": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64,
                     "vocab": 49152},
    "7B": {"layers": 32, "width": 4096, "ffn": 11008, "heads": 32, "kv_heads": 32, "head_dim": 128, "vocab": 32000},
}


def launches(shape):
    return shape["layers"] * len(LAYER) + len(OUTSIDE)


def matrices(shape):
    """Weights that each matvec of a token reads."""
    d, f, of = shape["width"], shape["ffn"], shape["head_dim"]
    q, kv = shape["heads"] * of, shape["kv_heads"] * of
    return {"matvec q k v": d * (q + 2 * kv), "matvec out, add": q * d, "matvec gate, up, GLU": 2 * d * f,
            "matvec down, add": d * f, "matvec output": d * shape["vocab"]}


def weights(shape):
    """Of all matrices, each once."""
    by_name = matrices(shape)
    return shape["layers"] * sum(by_name[n] for n in LAYER if n in by_name) + by_name["matvec output"]


def weight_bytes(shape, dtype):
    return weights(shape) * DTYPES[dtype][0]


def kv_bytes(shape):
    return shape["layers"] * 2 * CONTEXT * shape["kv_heads"] * shape["head_dim"] * 4


def share(dtype):
    """Of the bandwidth that matvec should reach, and what holds it back: (share, under way, work)."""
    size, registers, lane, instructions = DTYPES[dtype]
    blocks = REGISTERS // (math.ceil(registers / 8) * 8 * 128)
    warps = min(blocks * 4, WARPS_MOST)
    under_way = warps * 32 * lane * PROCESSORS / (BANDWIDTH * LATENCY_US * 1e-6)
    work = PROCESSORS * ISSUE * CLOCK * ISSUED / instructions * size / BANDWIDTH
    return min(REACHED, under_way * REACHED, work), under_way, work


def kernel_us(shape, name, dtype):
    """Of one launch, without the gap."""
    read = matrices(shape).get(name)
    if read:
        return max(MATVEC_US, read * DTYPES[dtype][0] / (share(dtype)[0] * BANDWIDTH) * 1e6)
    if name == "attend_row":
        return max(LEAST_US[name], kv_bytes(shape) / shape["layers"] / (0.5 * BANDWIDTH) * 1e6)
    return LEAST_US[name]


def token_us(shape, dtype):
    each = sum(kernel_us(shape, n, dtype) for n in LAYER) * shape["layers"]
    return each + sum(kernel_us(shape, n, dtype) for n in OUTSIDE) + launches(shape) * GAP_US


# ---- tables ----------------------------------------------------------------------------------------


def row(*cells):
    return "| " + " | ".join(cells) + " |\n"


def head(*cells):
    return row(*cells) + "|---" * len(cells) + "|\n"


def table_of_dtypes():
    out = head("matvec in", *DTYPES)
    shares = [share(d) for d in DTYPES]
    out += row("bytes a weight", *(f"{v[0]:g}" for v in DTYPES.values()))
    out += row("registers; instructions a weight", *(f"{v[1]}; {v[3]:g}" for v in DTYPES.values()))
    out += row("bytes under way, of those that latency asks for", *(f"{100 * s[1]:.0f} %" for s in shares))
    out += row("bandwidth that its work allows", *(f"{100 * s[2]:.0f} %" for s in shares))
    return out + row("share of the bandwidth", *(f"**{100 * s[0]:.0f} %**" for s in shares))


def table_of_models():
    out = head("a token, after 1024 others", *MODELS)
    shapes = MODELS.values()
    out += row("launches", *(f"{launches(s)}" for s in shapes))
    out += row("weights read", *(f"{weights(s) / 1e6:.1f} M" for s in shapes))
    out += row("kv read, F32", *(f"{kv_bytes(s) / 1e6:.0f} MB" for s in shapes))
    for d in DTYPES:
        cells = []
        for s in shapes:
            read = weight_bytes(s, d)
            limit, us = BANDWIDTH / (read + kv_bytes(s)), token_us(s, d)
            cells.append(f"{read / 1e6:.0f} MB; at most {limit:.0f} tokens a second; {us / 1000:.2f} ms, "
                         f"**{1e6 / us:.0f}** tokens a second, {100 * 1e6 / us / limit:.0f} %")
        out += row(d.upper(), *cells)
    return out


def table_of_kernels():
    out = head("kernel", "launches", *(f"{m}, us each in F16, Q4_1" for m in MODELS))
    for name in dict.fromkeys(LAYER + OUTSIDE):
        count = "+".join(x for x in (f"{LAYER.count(name)} a layer" * (name in LAYER),
                                     f"{OUTSIDE.count(name)}" * (name in OUTSIDE)) if x)
        out += row(name, count, *(f"{kernel_us(s, name, 'f16'):.1f}, {kernel_us(s, name, 'q4_1'):.1f}"
                                  for s in MODELS.values()))
    return out


def tables():
    return "\n".join((table_of_dtypes(), table_of_kernels(), table_of_models()))


def main():
    before, rest = README.read_text().split(BEGIN)
    stands, after = rest.split(END)
    if sys.argv[1:] == ["--write"]:
        README.write_text(before + BEGIN + tables() + END + after)
    elif sys.argv[1:] == ["--check"] and stands != tables():
        sys.exit("plan.py: the tables of the README are not those that it makes: plugins/cuda/plan.py --write")
    elif not sys.argv[1:]:
        sys.stdout.write(tables())


if __name__ == "__main__":
    main()
