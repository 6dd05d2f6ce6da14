#!/usr/bin/env python3
"""Proves that rooms.py catches each kind of fault, in small trees made for it."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rooms  # noqa: E402

GOOD = {
    "abi/fak_backend.h": "#include <stddef.h>\n#include <stdint.h>\n",
    "core/meson.build": "core_files = files(\n  'port.c', # lowest\n  'ref.c',\n  'plan.c')\n"
                        "fakrun_files = files('cmd_run.c', 'main.c')\n",
    "core/port.h": "#include <stdint.h>\n",
    "core/port.c": '#include "port.h"\n#include <stdio.h>\n',
    "core/ref.h": '#include "../abi/fak_backend.h"\n#include "port.h"\n',
    "core/ref.c": '#include "ref.h"\n',
    "core/plan.h": '#include "ref.h"\n',
    "core/plan.c": '/* #include "main.h" */\n#include "plan.h"\n',
    "core/cmd_run.c": '#include "plan.h"\n',
    "core/main.c": '#include "port.h"\n',
    "plugins/cpu-ref/backend.c": '#include "fak_backend.h"\n#include "ref.h"\n',
    "plugins/toy/toy.c": '#include <stdlib.h>\n#include "fak_backend.h"\n#include "toy.h"\n',
    "plugins/toy/toy.h": "",
}


class Rooms(unittest.TestCase):
    def faults(self, **changed):
        """What rooms.py says of GOOD with files added or replaced ('__' stands for '/')."""
        tree = dict(GOOD)
        for name, text in changed.items():
            path = name.replace("__", "/").replace("cpu_ref", "cpu-ref")
            stem, _, suffix = path.rpartition("_")
            tree[f"{stem}.{suffix}"] = text
        with tempfile.TemporaryDirectory() as folder:
            for name, text in tree.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return rooms.check(folder)[1]

    def caught(self, words, **changed):
        faults = self.faults(**changed)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn(words, faults[0])

    def test_good(self):
        self.assertEqual(self.faults(), [])

    def test_lower_room(self):
        self.caught("core/port.c: includes plan.h, a lower room",
                    core__port_c='#include "plan.h"\n')
        self.caught("core/port.c: includes plan.h, a lower room",
                    core__port_c='#  include \\\n  "plan.h"\n')

    def test_cycle(self):
        faults = self.faults(core__port_h='#include "plan.h"\n')
        self.assertIn("core/port.h: includes plan.h, a lower room", faults)
        self.assertIn("cycle: core/plan.h > core/ref.h > core/port.h > core/plan.h", faults)
        self.caught("cycle: plugins/toy/toy.h > plugins/toy/toy.h",
                    plugins__toy__toy_h='#include "toy.h"\n')

    def test_not_listed(self):
        self.caught("core/extra.c: not listed", core__extra_c="")
        self.caught("core/extra.h: not listed", core__extra_h="")

    def test_outside_core(self):
        self.caught("core/plan.c: includes ../plugins/toy/toy.h, which is outside core/",
                    core__plan_c='#include "../plugins/toy/toy.h"\n')
        self.caught("core/plan.c: includes ../plugins/toy/toy.h, which is outside core/",
                    core__plan_c='#include <../plugins/toy/toy.h>\n')

    def test_nowhere(self):
        self.caught("core/plan.c: includes nothing.h, which is nowhere",
                    core__plan_c='#include "nothing.h"\n')
        self.caught("core/plan.c: includes fak_backend.h, which is nowhere",
                    core__plan_c='#include "fak_backend.h"\n')
        self.caught("plugins/toy/toy.c: includes nothing.h, which is nowhere",
                    plugins__toy__toy_c='#include "nothing.h"\n')
        self.caught("core/plan.c: includes HEADER, which is nowhere",
                    core__plan_c="#include HEADER\n")

    def test_plugin(self):
        self.caught("plugins/toy/toy.c: includes ref.h, which is outside the plugin",
                    plugins__toy__toy_c='#include "ref.h"\n')
        self.caught("plugins/toy/toy.c: includes ../cpu-ref/x.h, which is outside the plugin",
                    plugins__toy__toy_c='#include "../cpu-ref/x.h"\n', plugins__cpu_ref__x_h="")
        self.caught("plugins/cpu-ref/backend.c: includes port.h, which is outside the plugin",
                    plugins__cpu_ref__backend_c='#include "port.h"\n')

    def test_abi(self):
        self.caught("abi/fak_backend.h: includes stdio.h",
                    abi__fak_backend_h="#include <stdio.h>\n")
        self.caught("abi/fak_backend.h: includes x.h", abi__fak_backend_h='#include "x.h"\n')

    def test_list(self):
        faults = self.faults(core__meson_build="core_files = []\n")
        self.assertIn("core/meson.build: no core_files = files(...)", faults)
        self.caught("core/meson.build: lists port twice", core__meson_build=GOOD[
            "core/meson.build"].replace("'main.c'", "'main.c', 'port.c'"))


if __name__ == "__main__":
    unittest.main()
