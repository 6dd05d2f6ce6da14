#!/usr/bin/env python3
"""embed.py OUT.c NAME.spv...: the shaders as a C file; NAME.subgroups.spv is NAME's other way."""
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
    shader, _, way = path.stem.partition(".")
    name = f"{shader}_{way or 'plain'}"
    out.append(f"static const uint32_t {name}_code[] = {{\n" + ",\n".join(lines) + "};")
    rows.append(f"    [SHADER_{shader.upper()}][{(way or 'plain').upper()}] = {{{name}_code, sizeof {name}_code}},")
out += ["const spirv vk_spirv[SHADERS][WAYS] = {", *rows, "};", ""]
pathlib.Path(sys.argv[1]).write_text("\n".join(out))
