#!/usr/bin/env python3
"""cuda_kernels.py PLUGIN CC [--table]: the kernels of plugins/cuda as nvcc sees them; 77 where there is none.

All architectures compile without a warning, and no kernel spills registers, has a stack or takes so much that
few blocks fit on a processor (--table: what each takes); PTX has fused multiply-adds where the source says fmaf
and nowhere else (in PTX, as the machine's own division uses them); host/driver.h agrees with the toolkit.
"""
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile

PLUGIN, CC = pathlib.Path(sys.argv[1]), shlex.split(sys.argv[2])
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
FUSED = re.compile(r"matvec8?_(f32|f16|bf16|q\w+)$|gemm_(f32|f16|bf16|q\w+)$|attend_(row|tile|merge)$|rmsnorm$")
EXACT = re.compile(r"_q8$|^dot_|^attend_exact$|^embed_|^pair$|^map$|^rope$|^quantise$|^argmax$|^kv_")
DRIVER = r"""
#include <cuda.h>
#define cu_uuid mine_uuid
#define cu_pool_props mine_pool_props
#include "types.h"
#undef cu_uuid
#undef cu_pool_props
#define cu_uuid CUuuid
#define cu_pool_props CUmemPoolProps
_Static_assert(sizeof(mine_uuid) == sizeof(CUuuid), "uuid");
_Static_assert(sizeof(mine_pool_props) == sizeof(CUmemPoolProps), "pool");
_Static_assert(offsetof(mine_pool_props, location) == offsetof(CUmemPoolProps, location), "location");
_Static_assert(offsetof(mine_pool_props, most) == offsetof(CUmemPoolProps, maxSize), "most");
#define SAME(a, b) _Static_assert((unsigned)(a) == (unsigned)(b), #a)
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME(CU_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SAME(CU_POOL_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(CU_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME(CU_POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME(CU_POOL_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_ON_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_FLAGS, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
SAME(CU_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CU_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
#define CHECK(name, parameters)                                                                    \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), cu_result parameters), #name);
DRIVER_CALLS(CHECK)
"""


PROCESSOR = {"registers": 65536, "shared": 100 << 10, "warps": 48}  # the least of the architectures
WARPS = 4                                                           # of a block
LEAST = {"matvec_": 32, "": 16}  # warps that must fit on a processor at once


def nvcc(*args):
    """What it said: of ptxas -v, and nothing else."""
    said = subprocess.run([NVCC, "-std=c++17", "-fmad=false", "-Werror", "all-warnings", "-I", PLUGIN, *args],
                          capture_output=True, check=False, text=True)
    words = [line for line in said.stderr.splitlines() if not re.match(r"ptxas info|    \d+ bytes stack", line)]
    if said.returncode or "".join(words).strip():
        sys.exit(f"nvcc {' '.join(map(str, args))}: exit {said.returncode}\n{said.stdout}{said.stderr}")
    return said.stderr


def resources(said):
    """{(architecture, kernel): {registers, shared, stack, spill}} of what ptxas -v says."""
    found = {}
    for name, arch, rest in re.findall(r"entry function '(\w+)' for 'sm_(\d+)'(.*?)(?=Compiling|\Z)", said, re.S):
        stack, stores, loads = map(int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                                                  r"(\d+) bytes spill loads", rest).groups())
        shared = re.search(r"(\d+) bytes smem", rest)
        found[arch, name] = {"registers": int(re.search(r"Used (\d+) registers", rest)[1]), "stack": stack,
                             "shared": int(shared[1]) if shared else 0, "spill": stores + loads}
    return found


def resident(r):
    """Warps that fit on a processor at once."""
    blocks = PROCESSOR["registers"] // (-(-r["registers"] // 8) * 8 * 32 * WARPS)
    blocks = min(blocks, PROCESSOR["shared"] // (r["shared"] + 1024))
    return min(blocks * WARPS, PROCESSOR["warps"])


def check_resources(said):
    found = resources(said)
    kernels = len({name for _, name in found})
    assert len(found) == 3 * kernels and kernels > 50, len(found)
    plan = runpy.run_path(str(PLUGIN / "plan.py"))["DTYPES"]
    faults = []
    for (arch, name), r in sorted(found.items()):
        least = next(n for start, n in LEAST.items() if name.startswith(start))
        if r["stack"] or r["spill"]:
            faults.append(f"{name} on sm_{arch}: {r['spill']} bytes spilled, a stack of {r['stack']}; "
                          "there is to be none")
        if resident(r) < least:
            faults.append(f"{name} on sm_{arch}: {r['registers']} registers, {r['shared']} bytes of shared memory let "
                          f"{resident(r)} warps on a processor; {least} are wanted")
        if arch == "90" and name.startswith("matvec_") and name[7:] in plan and plan[name[7:]][1] != r["registers"]:
            faults.append(f"{name}: {r['registers']} registers; plan.py counts on {plan[name[7:]][1]}")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{kernels} kernels on three architectures: none spills")


def print_table(found):
    names = sorted({name for _, name in found})
    print("| kernel | registers on sm_80, 89, 90 | static shared memory | warps on a processor |\n|---|---|---|---|")
    for name in names:
        of = [found[arch, name] for arch in ("80", "89", "90")]
        print(f"| {name} | {', '.join(str(r['registers']) for r in of)} | {of[2]['shared']} | "
              f"{min(map(resident, of))} |")


def check_fused(ptx):
    seen = {}
    for name, body in re.findall(r"\.entry (\w+)\((.*?)\n}", ptx, re.S):
        seen[name] = len(re.findall(r"\bfma\.rn\.f32", body))
    listed = re.findall(r"KERNEL\(", ptx)
    assert not listed and len(seen) > 50, len(seen)
    for name, fused in sorted(seen.items()):
        if EXACT.search(name) and fused:
            sys.exit(f"{name}: {fused} fused multiply-adds; it is to be exact")
        if FUSED.search(name) and not EXACT.search(name) and not fused:
            sys.exit(f"{name}: no fused multiply-add is seen where the source says fmaf")
    print(f"{len(seen)} kernels; fused multiply-adds only where they are asked for")


def check_driver(room):
    """Every function that the plugin looks up has the toolkit's own type."""
    include = pathlib.Path(NVCC).resolve().parent.parent / "include"
    (room / "types.h").write_text((PLUGIN / "host/driver.h").read_text())
    (room / "driver.c").write_text(DRIVER)
    subprocess.run([*CC, "-std=gnu11", "-fsyntax-only", "-I", include, "-I", room, room / "driver.c"], check=True)
    print("host/driver.h agrees with the toolkit")


def main():
    if not os.access(NVCC, os.X_OK):
        print("nvcc is not here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name)
        check_driver(room)
        nvcc("-ptx", "-arch=compute_90", "-o", room / "all.ptx", PLUGIN / "kernels/all.cu")
        check_fused((room / "all.ptx").read_text())
        said = nvcc("-fatbin", "-Xptxas", "-v", "-gencode", "arch=compute_80,code=sm_80",
                    "-gencode", "arch=compute_89,code=sm_89", "-gencode", "arch=compute_90,code=[sm_90,compute_90]",
                    "-o", room / "all.fatbin", PLUGIN / "kernels/all.cu")
        if sys.argv[3:] == ["--table"]:
            print_table(resources(said))
        check_resources(said)
        print(f"sm_80, sm_89, sm_90, PTX: {(room / 'all.fatbin').stat().st_size} bytes")


main()
