#!/usr/bin/env python3
"""abi_layout.py [--write]: every struct of abi/fak_backend.h is laid out as in abi/layout.golden.

A line is a field's offset, or a struct's size, on x86-64 and on wasm32:
    fak_op.eps 84 84
    sizeof fak_op 96 96
Also holds on both: no holes and no padding, 64-bit fields at multiples of 8, known types only; a
struct without pointers is alike on both, and one with pointers has no 64-bit fields.
--write makes the golden file anew: for a change of the ABI that is meant.
"""
import difflib
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER, GOLDEN = ROOT / "abi/fak_backend.h", ROOT / "abi/layout.golden"
TARGETS = {"x86_64-linux-gnu": 8, "wasm32": 4}  # target: bytes of a pointer
BYTES = {"char": 1, "int32_t": 4, "uint32_t": 4, "float": 4, "uint64_t": 8, "fak_array": 12}


def dump(names, target):
    """{struct: (size, [(field, type, offset)])} as clang lays it out."""
    source = '#include "fak_backend.h"\nint use[] = {' + "".join(
        f"(int)sizeof({name}), " for name in names) + "};\n"
    command = ["clang", f"--target={target}", "-ffreestanding", "-std=c11", "-fsyntax-only",
               "-Xclang", "-fdump-record-layouts", f"-I{HEADER.parent}", "-x", "c", "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    structs = {}
    for record in text.split("*** Dumping AST Record Layout")[1:]:
        name = re.search(r"0 \| (?:struct )?(\w+)\n", record)[1]
        fields = [(field, kind.replace("struct ", ""), int(offset)) for offset, kind, field in
                  re.findall(r"^ *(\d+) \|   (?! )(.+) (\w+)$", record, re.M)]
        structs[name] = (int(re.search(r"\[sizeof=(\d+)", record)[1]), fields)
    return {name: structs[name] for name in names}


def is_pointer(kind):
    return "*" in kind


def is_wide(kind):
    return kind.startswith("uint64_t") and not is_pointer(kind)


def field_bytes(kind, pointer):
    """Size of a field by the spelling of its type; 0 for a type that the ABI does not use."""
    if is_pointer(kind):
        return pointer
    base, count = re.match(r"(\w+) ?(?:\[(\d+)\])?$", kind).groups()
    return BYTES.get(base, 0) * int(count or 1)


def check_struct(name, size, fields, target, pointer):
    end = 0
    for field, kind, offset in fields:
        where = f"{name}.{field} ({target})"
        if not field_bytes(kind, pointer):
            yield f"{where}: type {kind} is not one of the ABI's"
        if offset != end:
            yield f"{where}: at {offset}, a hole after {end}"
        if is_wide(kind) and offset % 8:
            yield f"{where}: 64 bits at {offset}, no multiple of 8"
        end = offset + field_bytes(kind, pointer)
    if end != size:
        yield f"{name} ({target}): ends in padding, {end} of {size} bytes"


def check_all(wide, narrow):
    for name, (_, fields) in wide.items():
        kinds = [kind for _, kind, _ in fields]
        for (target, pointer), side in zip(TARGETS.items(), (wide, narrow)):
            yield from check_struct(name, *side[name], target, pointer)
        if not any(map(is_pointer, kinds)):
            if wide[name] != narrow[name]:
                yield f"{name}: no pointers, but other layouts on 64 and 32 bits"
        elif any(map(is_wide, kinds)):
            yield f"{name}: pointers and 64-bit fields in one struct"


def lines(wide, narrow):
    for name, (size, fields) in wide.items():
        for (field, _, offset), (_, _, offset32) in zip(fields, narrow[name][1]):
            yield f"{name}.{field} {offset} {offset32}\n"
        yield f"sizeof {name} {size} {narrow[name][0]}\n"


def main():
    if not shutil.which("clang"):
        print("clang is not installed")
        return 77
    names = re.findall(r"\} (fak_[a-z_]+);", HEADER.read_text())
    wide, narrow = (dump(names, target) for target in TARGETS)
    faults = list(check_all(wide, narrow))
    now = list(lines(wide, narrow))
    if "--write" in sys.argv[1:] and not faults:
        GOLDEN.write_text("".join(now))
    golden = GOLDEN.read_text().splitlines(keepends=True) if GOLDEN.exists() else []
    faults += [line.rstrip() for line in difflib.unified_diff(golden, now, "golden", "header", n=0)
               if not line.startswith("@@")]
    print("\n".join(faults) or f"{len(names)} structs, {len(now) - len(names)} fields as frozen")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
