#!/usr/bin/env python3
"""Proves that check_tree.py reports what it is there to report: on small planted trees."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_tree
import cpp_text

SCRIPT = Path(check_tree.__file__).resolve()


def plant(root, files):
    (Path(root) / "include").mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        file = Path(root) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def found(files):
    """(path, line, rule) of every violation in a tree of these files."""
    with tempfile.TemporaryDirectory() as root:
        plant(root, files)
        return [(v.path, v.line, v.rule) for v in check_tree.check(root)]


def body(lines):
    return "".join(f"  Step({i});\n" for i in range(lines))


class LintTest(unittest.TestCase):
    def assert_clean(self, files):
        self.assertEqual(found(files), [])

    def assert_one(self, files, path, line, rule):
        self.assertEqual(found(files), [(path, line, rule)])

    def assert_include(self, path, header, allowed):
        files = {path: f'#pragma once\n#include "{header}"\n'}
        expected = [] if allowed else [(path, 2, "include")]
        self.assertEqual(found(files), expected, f"{path} includes {header}")


class IncludeTest(LintTest):
    def test_arrows_point_down(self):
        cases = [
            ("include/parkade/a.h", "parkade/b.h", True),
            ("include/parkade/a.h", "absl/status/status.h", True),
            ("include/parkade/a.h", "src/format/a.h", False),
            ("include/parkade/a.h", "tiers/ram/a.h", False),
            ("src/format/a.cc", "parkade/b.h", True),
            ("src/format/a.cc", "src/format/b.h", True),
            ("src/format/a.cc", "src/manager/b.h", False),
            ("src/index/a.cc", "parkade/b.h", True),
            ("src/index/a.cc", "src/format/b.h", False),
            ("src/policy/a.cc", "src/index/b.h", False),
            ("src/manager/a.cc", "src/format/b.h", True),
            ("src/manager/a.cc", "src/index/b.h", True),
            ("src/manager/a.cc", "src/policy/b.h", True),
            ("src/manager/a.cc", "src/metrics/b.h", False),
            ("src/manager/a.cc", "src/engine/fake/b.h", False),
            ("src/device/a.cc", "src/format/b.h", False),
            ("src/engine/fake/a.cc", "src/format/b.h", True),
            ("src/engine/fake/a.cc", "src/engine/llama/b.h", False),
            ("src/engine/llama/a.cc", "src/server/b.h", True),
            ("src/engine/llama/a.cc", "src/manager/b.h", False),
            ("src/metrics/a.cc", "parkade/b.h", True),
            ("src/metrics/a.cc", "src/format/b.h", False),
            ("src/server/a.cc", "src/manager/b.h", False),
            ("tiers/ram/a.cc", "src/format/b.h", True),
            ("tiers/ram/a.cc", "src/manager/b.h", False),
            ("tiers/disk/a.cc", "tiers/disk/b.h", True),
            ("tiers/disk/a.cc", "tiers/ram/b.h", False),
            ("tiers/remote/a.cc", "src/engine/fake/b.h", False),
            ("tests/unit/a.cc", "src/manager/b.h", True),
            ("src/manager/a.cc", "tests/support/b.h", False),
        ]
        for path, header, allowed in cases:
            self.assert_include(path, header, allowed)

    def test_only_main_the_tool_and_tests_name_concrete_tiers(self):
        for path, allowed in [
            ("src/server/main.cc", True),
            ("src/cli/a.cc", True),
            ("tests/bench/a.cc", True),
            ("tests/conformance/a.cc", True),
            ("src/server/routes.cc", False),
            ("src/manager/a.cc", False),
            ("src/engine/llama/a.cc", False),
        ]:
            self.assert_include(path, "tiers/disk/disk_tier.h", allowed)

    def test_libraries_have_their_rooms(self):
        cases = [
            ("src/engine/llama/a.cc", "llama.h", True),
            ("src/engine/llama/a.cc", "ggml-backend.h", True),
            ("src/engine/llama/a.cc", "server-context.h", True),
            ("src/server/a.cc", "server-context.h", False),
            ("src/server/main.cc", "llama.h", False),
            ("src/device/a.cc", "ggml.h", False),
            ("src/manager/a.cc", "src/llama-io.h", False),
            ("src/metrics/a.cc", "prometheus/registry.h", True),
            ("src/manager/a.cc", "prometheus/registry.h", False),
            ("src/server/main.cc", "prometheus/registry.h", False),
            ("tiers/disk/a.cc", "rocksdb/db.h", True),
            ("tiers/ram/a.cc", "rocksdb/db.h", False),
            ("src/cli/a.cc", "rocksdb/db.h", False),
            ("tiers/remote/a.cc", "hiredis/hiredis.h", True),
            ("tests/support/a.cc", "hiredis/hiredis.h", True),
            ("src/server/main.cc", "hiredis/hiredis.h", False),
            ("tiers/disk/a.cc", "hiredis/hiredis_ssl.h", False),
            ("src/format/a.cc", "lz4.h", True),
            ("src/format/a.cc", "zstd.h", True),
            ("src/format/a.cc", "xxhash.h", True),
            ("src/format/a.h", "xxh_x86dispatch.h", True),
            ("tiers/disk/a.cc", "lz4.h", False),
            ("src/manager/a.cc", "xxhash.h", False),
            ("src/manager/a.cc", "xxh_x86dispatch.h", False),
            ("src/device/a.cc", "cuda_runtime.h", True),
            ("tiers/ram/a.cc", "cuda_runtime.h", False),
            ("src/format/a.cc", "sys/random.h", True),
            ("src/manager/a.cc", "sys/random.h", False),
            ("src/index/a.cc", "gtest/gtest.h", False),
        ]
        for path, header, allowed in cases:
            self.assert_include(path, header, allowed)

    def test_pure_rooms_take_only_the_standard_library_and_abseil(self):
        for room in ["include/parkade", "src/format", "src/index", "src/policy"]:
            for header, allowed in [
                ("vector", True),
                ("stdint.h", True),
                ("absl/types/span.h", True),
                ("unistd.h", False),
                ("sys/stat.h", False),
                ("nlohmann/json.hpp", False),
            ]:
                self.assert_include(f"{room}/a.h", header, allowed)
        self.assert_include("tiers/disk/a.cc", "sys/stat.h", True)

    def test_a_header_beside_is_its_own_room(self):
        files = {"src/index/a.cc": '#include "b.h"\n', "src/index/b.h": "#pragma once\n"}
        self.assert_clean(files)

    def test_a_header_like_a_librarys_beside_is_not_the_librarys(self):
        files = {"src/server/a.cc": '#include "log.h"\n', "src/server/log.h": "#pragma once\n"}
        self.assert_clean(files)

    def test_no_way_round_over_the_folder_above(self):
        files = {"src/index/a.cc": '#include "../index/b.h"\n', "src/index/b.h": "\n"}
        self.assert_one(files, "src/index/a.cc", 1, "include")

    def test_angle_brackets_and_spaces_are_seen(self):
        files = {"src/index/a.cc": "\n#  include  <rocksdb/db.h>\n"}
        self.assert_one(files, "src/index/a.cc", 2, "include")

    def test_comments_are_not_includes(self):
        text = '// #include "rocksdb/db.h"\n/*\n#include "rocksdb/db.h"\n*/\n'
        self.assert_clean({"src/index/a.cc": text})

    def test_a_room_without_a_row_is_refused(self):
        self.assert_one({"src/extra/a.cc": "\n"}, "src/extra/a.cc", 1, "include")
        self.assert_one({"src/a.cc": "\n"}, "src/a.cc", 1, "include")


class SizeTest(LintTest):
    def test_file_lengths(self):
        for path, most in [
            ("include/parkade/a.h", 300),
            ("src/index/a.h", 500),
            ("src/index/a.cc", 500),
            ("tiers/disk/a.cc", 500),
            ("config/a.sh", 500),
            ("tests/unit/a.cc", 700),
            ("tests/e2e/a.py", 700),
        ]:
            self.assert_clean({path: "\n" * most})
            self.assert_one({path: "\n" * (most + 1)}, path, most + 1, "file size")

    def test_line_lengths(self):
        for path in ["src/index/a.cc", "config/a.py", "tests/CMakeLists.txt", "config/A.cmake"]:
            self.assert_clean({path: "#" + "x" * 99 + "\n"})
            self.assert_one({path: "\n#" + "x" * 100 + "\n"}, path, 2, "line length")
        self.assert_clean({"src/index/a.cc": "// " + "ä" * 97 + "\n"})
        self.assert_clean({"src/index/a.cc": "// see https://example.org/" + "x" * 99 + "\n"})
        self.assert_clean({"README.md": "x" * 300 + "\n"})

    def test_function_lengths(self):
        for head in [
            "void F() {",
            "std::vector<int> Foo::Bar(int a) const noexcept {",
            "TEST(Suite, Case) {",
            "template <typename T> auto F(T t) -> decltype(t) {",
            "static struct stat F() {",
        ]:
            self.assert_clean({"src/index/a.cc": f"\n{head}\n{body(68)}}}\n"})
            files = {"src/index/a.cc": f"\n{head}\n{body(69)}}}\n"}
            self.assert_one(files, "src/index/a.cc", 2, "function size")

    def test_functions_inside_scopes(self):
        head = "namespace a {\nnamespace {\nclass B : C {\n public:\n  void F() {\n"
        files = {"src/index/a.cc": f"{head}{body(69)}}}\n}};\n}}\n}}\n"}
        self.assert_one(files, "src/index/a.cc", 5, "function size")

    def test_constructors_are_measured_once(self):
        head = "A::A()\n    : a_{1},\n      b_(2),\n      c_{3} {\n"
        self.assertEqual(
            cpp_text.functions(head + body(2) + "}\nint B() { return 1; }\n"),
            [(1, 7, "A::A"), (8, 8, "B")],
        )

    def test_what_is_long_but_no_function(self):
        rows = "".join(f"  {{{i}, F({i})}},\n" for i in range(90))
        fields = "".join(f"  int f{i}(int);\n" for i in range(90))
        self.assert_clean({"src/index/a.cc": f"const Row kRows[] = {{\n{rows}}};\n"})
        self.assert_clean({"src/index/a.cc": f"const auto kRows = Make({{\n{rows}}});\n"})
        self.assert_clean({"src/index/a.cc": f"class A : B<int()> {{\n{fields}}};\n"})
        self.assert_clean({"src/index/a.cc": f'extern "C" {{\n{fields}}}\n'})

    def test_braces_in_text_do_not_count(self):
        call = "Put(\"{\", '{', R\"x({\n{)x\", 1'000'000);"
        text = f"void F() {{\n  // {{\n  {call}\n}}\nvoid G() {{\n}}\n"
        self.assertEqual(cpp_text.functions(text), [(1, 5, "F"), (6, 7, "G")])

    def test_operators_have_names(self):
        text = "bool operator<(A a, A b) { return a < b; }\nint A::operator()(int b) {\n}\n"
        names = [name for _, _, name in cpp_text.functions(text)]
        self.assertEqual(names, ["operator<", "A::operator"])

    def test_unbalanced_branches_give_nothing(self):
        text = f"#if A\nvoid F() {{\n#else\nvoid F(int) {{\n#endif\n{body(80)}}}\n"
        self.assert_clean({"src/index/a.cc": text})

    def test_python_functions(self):
        steps = "".join(f"    step({i})\n" for i in range(70))
        self.assert_one({"config/a.py": f"\ndef f():\n{steps}"}, "config/a.py", 2, "function size")
        self.assert_one({"config/a.py": "\ndef f(:\n"}, "config/a.py", 2, "python")


class WordTest(LintTest):
    def test_names_that_say_nothing(self):
        for stem in ["util", "utils", "common", "helper", "misc", "file_util", "test_helpers"]:
            path = f"src/index/{stem}.cc"
            self.assert_one({path: "\n"}, path, 1, "name")
        self.assert_one({"tests/common/a.cc": "\n"}, "tests/common", 1, "name")
        self.assert_clean({"src/index/common_prefix.cc": "\n", "src/index/utility.cc": "\n"})

    def test_unfinished_work(self):
        for word in ["TO" + "DO", "FIX" + "ME"]:
            for path in ["src/index/a.cc", "README.md", "config/a.sh", "CMakeLists.txt"]:
                self.assert_one({path: f"\n# {word}: later\n"}, path, 2, "unfinished")

    def test_paths_of_one_machine(self):
        for place in ["/wor" + "k/", "/roo" + "t/", "/tmp/bas" + "h_jobs"]:
            files = {"config/a.sh": f"\ncd {place}x\n"}
            self.assert_one(files, "config/a.sh", 2, "machine path")
        self.assert_clean({"config/a.sh": "cd src/wor" + "k/x ${HOME}/wor" + "k/\n"})

    def test_sleeps(self):
        for kind in ["unit", "model", "conformance"]:
            path = f"tests/{kind}/a.cc"
            for call in ["std::this_thread::sleep_for(x);", "sleep(1);", "usleep (1);",
                         "absl::SleepFor(x);"]:
                self.assert_one({path: f"\n{call}\n"}, path, 2, "sleep")
            self.assert_clean({path: '// never sleep(1)\nPut("sleep(1)"); Oversleep(1);\n'})
        self.assert_clean({"tests/crash/a.cc": "sleep(1);\n"})

    def test_skips_say_why(self):
        path = "tests/gpu/a.cc"
        for rest in ["();", "() <<;", '() << "";', " ( ) ;"]:
            skip = "GTEST_SKIP" + rest
            self.assert_one({path: f"\n{skip}\n"}, path, 2, "skip")
        self.assert_clean({path: 'GTEST_SKIP() << "no device";\nGTEST_SKIP()\n    << reason;\n'})


class LockTest(LintTest):
    def test_every_mutex_guards_something(self):
        guarded = "absl::Mutex mu_;\nint a_ ABSL_GUARDED_BY(mu_);\n"
        self.assert_clean({"src/index/a.h": "mutable " + guarded})
        self.assert_clean({"src/index/a.h": guarded.replace("(mu_)", "(op->mu_)")})
        ordered = "absl::Mutex mu_ ABSL_ACQUIRED_AFTER(other_);\n"
        self.assert_clean({"src/index/a.h": ordered + "int a_ ABSL_GUARDED_BY(mu_);\n"})
        self.assert_one({"src/index/a.h": ordered}, "src/index/a.h", 1, "lock")
        self.assert_clean({"src/index/a.h": "void F(absl::Mutex* mu, absl::Mutex& other);\n"})
        for other in ["int a_;", "int a_ ABSL_GUARDED_BY(other_mu_);", "// ABSL_GUARDED_BY(mu_)"]:
            files = {"tests/unit/a.cc": f"\n absl::Mutex mu_;\n{other}\n"}
            self.assert_one(files, "tests/unit/a.cc", 2, "lock")

    def test_nothing_is_left_unchecked(self):
        word = "ABSL_NO_THREAD_SAFETY" + "_ANALYSIS"
        self.assert_one({"src/index/a.h": f"\nint F() {word};\n"}, "src/index/a.h", 2, "lock")
        self.assert_clean({"src/index/a.h": f"// {word}\n"})


class ProgramTest(LintTest):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            plant(root, files)
            command = [sys.executable, "-B", str(SCRIPT), root]
            return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_exit_status_and_report(self):
        good = self.run_on({"src/index/a.cc": "int a;\n"})
        self.assertEqual((good.returncode, good.stdout), (0, ""))
        bad = self.run_on({"src/index/a.cc": '\n#include "rocksdb/db.h"\n'})
        self.assertEqual(bad.returncode, 1)
        self.assertIn("src/index/a.cc:2: [include] rocksdb/db.h is RocksDB's", bad.stdout)

    def test_what_is_not_a_tree_is_refused(self):
        with tempfile.TemporaryDirectory() as empty:
            command = [sys.executable, "-B", str(SCRIPT), empty]
            status = subprocess.run(command, capture_output=True, check=False).returncode
        self.assertEqual(status, 2)

    def test_what_is_not_ours_is_left_alone(self):
        word = "TO" + "DO\n"
        self.assert_clean({"build/a.cc": word, "build-x/a.cc": word, ".git/a": word})
        self.assert_one({".github/a.yml": word}, ".github/a.yml", 1, "unfinished")


if __name__ == "__main__":
    unittest.main()
