"""Tests of src/engine/llama/apply_anchors.py: what it writes, and what it refuses to."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "src/engine/llama/apply_anchors.py"
SOURCE = """#include "a.h"
void f() {
    if (ready) {
        start();
    }
}
void g() {
    start_other();
    stop();
}
"""


class ApplyAnchors(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pristine = self.folder / "source/tools/server.cpp"
        self.pristine.parent.mkdir(parents=True)
        self.pristine.write_text(SOURCE, encoding="utf-8")
        self.edited = self.folder / "output/tools/server.cpp"

    def apply(self, *edits):
        anchors = self.folder / "anchors.json"
        anchors.write_text(json.dumps(edits), encoding="utf-8")
        return subprocess.run(
            [sys.executable, str(SCRIPT), "--anchors", str(anchors), "--source",
             str(self.folder / "source"), "--output", str(self.folder / "output")],
            capture_output=True, text=True, check=False)

    @staticmethod
    def edit(anchor, text, where="before", **changes):
        return {"hook": "h", "file": "tools/server.cpp", "anchor": anchor, "where": where,
                "text": text, **changes}

    def test_inserts_with_the_anchors_indentation(self):
        result = self.apply(self.edit("start();", "if (x) {\n    hook();\n}"),
                            self.edit("stop();", "hook2();", "after"),
                            self.edit('#include "a.h"', '#include "hooks.h"', "after"))
        self.assertEqual((result.returncode, result.stdout), (0, "tools/server.cpp\n"))
        self.assertEqual(result.stderr, "")
        added = "        if (x) {\n            hook();\n        }\n"
        expected = SOURCE.replace("        start();\n", added + "        start();\n")
        expected = expected.replace("    stop();\n", "    stop();\n    hook2();\n")
        expected = expected.replace('"a.h"\n', '"a.h"\n#include "hooks.h"\n')
        self.assertEqual(self.edited.read_text(encoding="utf-8"), expected)
        self.assertEqual(self.pristine.read_text(encoding="utf-8"), SOURCE)

    def test_several_lines_can_be_an_anchor(self):
        result = self.apply(self.edit("start();\n}", "hook();", "after"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("        start();\n    }\n        hook();\n}\n",
                      self.edited.read_text(encoding="utf-8"))

    def test_edits_beside_one_anchor_keep_their_order(self):
        self.assertEqual(self.apply(self.edit("stop();", "one();"),
                                    self.edit("stop();", "two();")).returncode, 0)
        self.assertIn("    one();\n    two();\n    stop();\n",
                      self.edited.read_text(encoding="utf-8"))

    def test_an_anchor_that_is_missing_or_not_single_stops(self):
        for anchor, count in (("start", 0), ("}", 3)):
            result = self.apply(self.edit("stop();", "x();"), self.edit(anchor, "y();"))
            self.assertEqual(result.returncode, 1)
            self.assertIn("tools/server.cpp", result.stderr)
            self.assertIn(f"hook 'h' occurs {count} times", result.stderr)
            self.assertIn("anchors.json", result.stderr)
            self.assertFalse(self.edited.exists())

    def test_an_edits_text_is_no_place_for_an_anchor(self):
        result = self.apply(self.edit("stop();", "start();"), self.edit("start();", "hook();"))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_same_edits_leave_the_file_untouched(self):
        self.apply(self.edit("stop();", "x();"))
        before = self.edited.stat().st_mtime_ns
        self.apply(self.edit("stop();", "x();"))
        self.assertEqual(self.edited.stat().st_mtime_ns, before)
        self.apply(self.edit("stop();", "y();"))
        self.assertIn("y();", self.edited.read_text(encoding="utf-8"))
        self.assertNotIn("x();", self.edited.read_text(encoding="utf-8"))

    def test_refuses_bad_edits_by_name(self):
        cases = (({"where": "beside"}, "where is"), ({"file": "tools/no.cpp"}, "no such file"),
                 ({"file": "tools/server.h"}, "not a file that is compiled"))
        for changes, message in cases:
            result = self.apply(self.edit("stop();", "x();", **changes))
            self.assertEqual(result.returncode, 1)
            self.assertIn(message, result.stderr)
        incomplete = self.edit("stop();", "x();")
        del incomplete["text"]
        self.assertIn("lacks text", self.apply(incomplete).stderr)


if __name__ == "__main__":
    unittest.main()
