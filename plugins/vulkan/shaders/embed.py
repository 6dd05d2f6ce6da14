#!/usr/bin/env python3
"""embed.py OUT.c NAME.spv...: the shaders as a C file, in the order of enum shader in vk.h."""
import pathlib
import struct
import sys

out = ['/* Made by shaders/embed.py. */', '#include "vk.h"']
rows = []
for path in map(pathlib.Path, sys.argv[2:]):
    code = path.read_bytes()
    words = struct.unpack(f"={len(code) // 4}I", code)
    assert words[0] == 0x07230203, path
    lines = (", ".join(f"{w:#x}" for w in words[i:i + 8]) for i in range(0, len(words), 8))
    out.append(f"static const uint32_t {path.stem}_code[] = {{\n" + ",\n".join(lines) + "};")
    rows.append(f"    [SHADER_{path.stem.upper()}] = {{{path.stem}_code, sizeof {path.stem}_code}},")
out += ["const spirv vk_spirv[SHADERS] = {", *rows, "};", ""]
pathlib.Path(sys.argv[1]).write_text("\n".join(out))
