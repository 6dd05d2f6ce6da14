#!/usr/bin/env python3
"""fakrun backends, and choosing one.  Usage: see common.py."""
import glob
import json
import os
import shutil
import tempfile

from common import (DTYPES, HERE, K_DTYPES, PLUGINS, ROOM, SO, Case, contents, environment, main,
                    model, room)


class Backends(Case):
    RUN = ["-p", "Hello", "-n", "4"]

    def backend_refused(self, args, *parts, **more):
        return self.refused(2, ["-m", model("tiny-f32"), *self.RUN, *args], *parts, **more)

    def test_unknown_names(self):
        for name in ("nope", "", "CPU-REF", "cpu-ref.so", ":0", "x" * 300):
            self.backend_refused(["--backend", name], "no backend", "cpu-ref")
        self.backend_refused([], '"nope"', "cpu-ref", env=environment(FAK_BACKEND="nope"))

    def test_where_it_looked_is_told(self):
        said = self.backend_refused(["--backend", "nope"],
                                    env=environment(FAK_PLUGIN_PATH="/nonexistent/plugins"))
        self.assertIn("/nonexistent/plugins: No such file or directory", said.err)
        for command in (["inspect", model("tiny-f32")], ["bench", "-m", model("tiny-f32")],
                        ["bisect", "-m", model("tiny-f32")]):
            said = self.refused(2, [*command, "--backend", "nope"], '"nope"',
                                env=environment(FAK_PLUGIN_PATH="/nonexistent/plugins"))
            self.assertIn("/nonexistent/plugins: No such file or directory", said.err)

    def test_fenced_names(self):
        for name, *others in (("metal", "METAL", "mps", "metal:0", "MPS:x"),
                              ("coreml", "CoreML", "ane", "ANE:0")):
            for spec in (name, *others):
                said = self.backend_refused(["--backend", spec], f"backend {name} is fenced",
                                            "Apple's toolchain", "abi/SUPPORT.md")
                self.assertEqual(len(said.err.splitlines()), 1)  # folders do not matter
            self.backend_refused([], f"backend {name} is fenced", env=environment(FAK_BACKEND=name))
        for name in ("metal2", "meta", "mps-x", "apple"):
            self.backend_refused(["--backend", name], f'no backend "{name}"')

    def test_fences_say_what_their_evidence_says(self):
        """abi/evidence holds what was said; the support matrix is made from it."""
        found = []
        for path in glob.glob(os.path.join(HERE, "..", "..", "abi", "evidence", "*.json")):
            fence = json.loads(contents(path))
            if fence.get("evidence") == "fence":
                said = self.backend_refused(["--backend", fence["backend"]])
                self.assertEqual((said.err, said.code), (fence["said"] + "\n", fence["exit"]))
                found.append(fence["backend"])
        self.assertEqual(sorted(found), ["coreml", "metal"])

    def test_a_file_of_a_fenced_name_is_used(self):
        folder = tempfile.mkdtemp(dir=ROOM)
        shutil.copy(SO, os.path.join(folder, "fak-backend-metal.so"))
        for name in ("metal", "Metal", "mps"):  # found, read, and refused for what it is
            self.backend_refused(["--backend", name], "fak-backend-metal.so",
                                 "its note calls it cpu-ref",
                                 env=environment(FAK_PLUGIN_PATH=folder))
        self.backend_refused(["--backend", "ane"], "backend coreml is fenced",
                             env=environment(FAK_PLUGIN_PATH=folder))

    def test_named_devices(self):
        for spec in ("cpu-ref", "cpu-ref:0", "cpu-ref:cpu:ref"):
            self.assertIn("named with --backend", self.fine(
                "-m", model("tiny-f32"), *self.RUN, "--backend", spec).err)
        self.backend_refused(["--backend", "cpu-ref:7"], "1 device", "no number 7")
        self.backend_refused(["--backend", "cpu-ref:cpu:other"], "cpu:other")
        for wrong in ("-1", "99999999999", "+0", " 0", "0x0", ""):  # told as it was given
            self.backend_refused(["--backend", "cpu-ref:" + wrong], f"{wrong}", "cpu-ref")

    def test_named_by_the_environment(self):
        args = ["-m", model("tiny-f32"), *self.RUN]
        self.assertIn("FAK_BACKEND", self.fine(*args, env=environment(FAK_BACKEND="cpu-ref")).err)
        self.fine(*args, "--backend", "cpu-ref", env=environment(FAK_BACKEND="nope"))  # it wins
        self.assertNotIn("FAK_BACKEND", self.fine(*args, env=environment(FAK_BACKEND="")).err)

    def test_options(self):
        for args, *parts in ((["-o", "unknown=1"], "unknown", "fused"),
                             (["-o", "fused=2"], "fused"), (["-o", "fused="], "fused"),
                             (["-o", "nonsense"], "name=value", '"nonsense"'),
                             (["-o", "=1"], "name=value"), (["-o", ""], "name=value"),
                             (["-o", "x" * 300 + "=1"], "name=value"),
                             (["-o", "fused=1"] * 33, "32")):
            said = self.backend_refused(args, *parts)
            self.assertLessEqual(said.err.splitlines()[-1].count("cpu-ref"), 1)
        self.fine("-m", model("tiny-f32"), *self.RUN, "-o", "fused=0", "-o", "fused=1")

    def test_a_wrong_option_needs_no_list_of_folders(self):
        self.assertEqual(len(self.backend_refused(["-o", "nonsense"]).err.splitlines()), 1)
        self.assertEqual(len(self.backend_refused(["-o", "fused=2"]).err.splitlines()), 1)

    def test_plugin_paths(self):
        args = ["-m", model("tiny-f32"), *self.RUN]
        plain = self.fine(*args).bytes
        for path, *parts in (
            ("relative", "folder relative: ", "absolute"),
            ("./here:/nonexistent/x", "folder ./here: ", "/nonexistent/x: No such file or directory"),
            ("/nonexistent:", "an empty entry of FAK_PLUGIN_PATH"),
            (room("a file", b""), "Not a directory"),
            ("", "folder "),
        ):
            env = environment(FAK_PLUGIN_PATH=path)
            self.assertEqual(self.fine(*args, env=env).bytes, plain)
            listed = self.fine("backends", "-v", env=env).out
            for part in parts:
                self.assertIn(part, listed)
            folders = self.fine("backends", "--json", env=env).json["folders"]
            for entry in path.split(":") if path else []:
                self.assertIn(entry, [f["path"] for f in folders])

    def test_the_working_directory_is_never_looked_in(self):
        folder = tempfile.mkdtemp(dir=ROOM)
        shutil.copy(SO, os.path.join(folder, "fak-backend-here.so"))
        for path in (None, "", ".", ":"):
            listed = self.fine("backends", cwd=folder, env=environment(FAK_PLUGIN_PATH=path)).out
            self.assertNotIn("here", listed)

    def test_backend_path(self):
        args = ["-m", model("tiny-f32"), *self.RUN]
        said = self.fine(*args, "--backend-path", SO)
        self.assertIn("--backend-path", said.err)
        self.assertEqual(said.bytes, self.fine(*args).bytes)
        relative = os.path.relpath(SO, ROOM)
        self.assertEqual(self.fine(*args, "--backend-path", relative, cwd=ROOM).bytes, said.bytes)
        text = room("fak-backend-text.so", b"this is text and no library, as can be seen\n" * 3)
        self.backend_refused(["--backend-path", text], "fak-backend-text.so", "ELF")
        self.backend_refused(["--backend-path", room("plain.txt", b"x")], "plain.txt",
                             "fak-backend-NAME.so")
        self.backend_refused(["--backend-path", room("fak-backend-no.so")], "No such file")
        self.backend_refused(["--backend-path", ROOM], "fak-backend-NAME.so")
        self.backend_refused(["--backend-path", SO, "--backend", "nope"], "nope")
        other = room("fak-backend-other.so", contents(SO))
        self.backend_refused(["--backend-path", other], "its note calls it cpu-ref")

    def test_list(self):
        for args in ([], ["-v"]):
            said = self.fine("backends", *args)
            self.assertEqual(said.err, "")
            self.assertIn("cpu-ref  (linked in)  loaded\n", said.out)
            self.assertIn('device 0: cpu "reference"', said.out)
        verbose = self.fine("backends", "-v").out
        for part in ("caps: ", "ops: embed, ", "-o fused=0|1", "folder /", "q4_1"):
            self.assertIn(part, verbose)
            self.assertNotIn(part, self.fine("backends").out)

    def test_list_as_json(self):
        said = self.fine("backends", "--json", env=environment(FAK_PLUGIN_PATH=PLUGINS)).json
        self.assertEqual(set(said), {"abi", "folders", "backends"})
        self.assertEqual(said["abi"], [1, 0])
        linked, file = [b for b in said["backends"] if b["name"] == "cpu-ref"]
        self.assertEqual((linked["path"], linked["state"]), ("(linked in)", "loaded"))
        self.assertEqual((file["path"], file["state"]),
                         (os.path.join(PLUGINS, "fak-backend-cpu-ref.so"), "shadowed"))
        self.assertEqual(file["why"], "shadowed by the one linked in")
        device = linked["devices"][0]
        self.assertEqual((device["id"], device["class"], device["kind"]),
                         ("cpu:ref", "reference", "cpu"))
        self.assertEqual(set(device["upload_dtypes"]), set(DTYPES + K_DTYPES))
        self.assertIn("attention", device["ops"])
        self.assertEqual([o["name"] for o in linked["options"]], ["fused"])

    def test_list_one_file(self):
        said = self.fine("backends", "--json", "--backend-path", SO).json
        self.assertEqual(said["folders"], [])
        self.assertEqual([b["state"] for b in said["backends"]], ["loaded", "loaded"])
        text = room("fak-backend-text.so", b"this is text and no library, as can be seen\n" * 3)
        result = self.run_it("backends", "--backend-path", text)
        self.assertEqual(result.code, 1)  # it was looked at, and it is no backend
        self.assertIn("it is not an ELF file", result.out)
        self.refused(2, ["backends", "--backend-path", room("missing.so")], "No such file")

    def test_folders_of_any_bytes(self):
        folder = os.path.join(os.fsencode(ROOM), b"plug\xe9ns \xff")
        os.mkdir(folder)
        shutil.copy(SO, os.path.join(folder, b"fak-backend-other.so"))
        env = environment(FAK_PLUGIN_PATH=os.fsdecode(folder))
        said = self.fine("backends", "--json", env=env).json
        self.assertIn("other", [b["name"] for b in said["backends"]])
        self.assertTrue(any("plug\ufffdns" in f["path"] for f in said["folders"]))
        self.assertIn("its note calls it cpu-ref", self.fine("backends", "-v", env=env).out)

    def test_broken_files_do_no_harm(self):
        folder = tempfile.mkdtemp(dir=ROOM)
        for name, data in (("empty", b""), ("text", b"text\n" * 30), ("short", b"\x7fELF")):
            with open(os.path.join(folder, f"fak-backend-{name}.so"), "wb") as file:
                file.write(data)
        os.mkdir(os.path.join(folder, "fak-backend-folder.so"))
        os.symlink("nowhere", os.path.join(folder, "fak-backend-dangling.so"))
        os.mkfifo(os.path.join(folder, "fak-backend-fifo.so"))  # to open it would wait for ever
        env = environment(FAK_PLUGIN_PATH=folder)
        said = self.fine("-m", model("tiny-f32"), *self.RUN, env=env)
        self.assertIn("not empty: it is empty", said.err)
        states = {b["name"]: b for b in self.fine("backends", "--json", env=env).json["backends"]}
        for name in ("empty", "text", "short", "folder", "dangling", "fifo"):
            self.assertEqual(states[name]["state"], "refused")
            self.assertIn(f"fak-backend-{name}.so", states[name]["path"])
            self.assertTrue(states[name]["why"])
            self.backend_refused(["--backend", name], f"fak-backend-{name}.so", env=env)


if __name__ == "__main__":
    main()
