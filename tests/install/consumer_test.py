"""What is installed, and whether others can build with it: by CMake's package and by pkg-config.

    consumer_test.py CMAKE BUILD_FOLDER C_COMPILER
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
CMAKE, BUILD, COMPILER = sys.argv[1:4]
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
EXPECTED = """\
parked 600 tokens
before the restart: planned 600 tokens, 600 from ram, 0 from disk
before the restart: reused 600 of 601 tokens, 600 from ram, 0 from disk
after the restart: planned 600 tokens, 0 from ram, 600 from disk
after the restart: reused 600 of 601 tokens, 0 from ram, 600 from disk
"""


def run(*command, **environment):
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        words = " ".join(shlex.quote(str(word)) for word in command)
        raise AssertionError(f"{words}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


class ConsumerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="parkade-consumer-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = Path(cls.folder.name)
        cls.prefix = cls.root / "prefix"
        run(CMAKE, "--install", BUILD, "--component", "parkade-library", "--prefix", cls.prefix)
        cls.shared_object = next(cls.prefix.glob("lib*/**/libparkade.so"))

    def pkg_config(self, *words):
        path = str(self.shared_object.parent / "pkgconfig")
        return run("pkg-config", *words, "parkade", PKG_CONFIG_PATH=path).split()

    def test_installs_one_header_and_the_library(self):
        files = sorted(
            file.relative_to(self.prefix).as_posix()
            for file in self.prefix.rglob("*")
            if not file.is_dir()
        )
        libraries = self.shared_object.parent.relative_to(self.prefix).as_posix()
        version = self.pkg_config("--modversion")[0]
        package = f"{libraries}/cmake/parkade"
        targets = [file for file in files if file.startswith(f"{package}/parkade-targets-")]
        self.assertEqual(len(targets), 1)
        self.assertEqual(
            [file for file in files if file not in targets],
            sorted(
                [
                    "include/parkade/parkade.h",
                    f"{package}/parkade-config-version.cmake",
                    f"{package}/parkade-config.cmake",
                    f"{package}/parkade-targets.cmake",
                    f"{libraries}/libparkade.so",
                    f"{libraries}/libparkade.so.0",
                    f"{libraries}/libparkade.so.{version}",
                    f"{libraries}/pkgconfig/parkade.pc",
                ]
            ),
        )

    def test_exports_what_the_header_declares(self):
        lines = run("nm", "--dynamic", "--defined-only", self.shared_object).splitlines()
        exported = {line.split()[-1] for line in lines}
        header = (self.prefix / "include/parkade/parkade.h").read_text()
        declared = set(re.findall(r"PARKADE_API [^(;]*?(parkade_\w+)\(", header))
        self.assertIn("parkade_open", declared)
        self.assertEqual(exported, declared)

    def test_header_alone(self):
        source = self.root / "alone.c"
        source.write_text("#include <parkade/parkade.h>\n")
        include = f"-I{self.prefix}/include"
        run(COMPILER, *WARNINGS, include, "-fsyntax-only", source)
        run(COMPILER, "-x", "c++", "-std=c++11", *WARNINGS[1:], include, "-fsyntax-only", source)

    def test_cmake_package(self):
        build = self.root / "build"
        run(
            CMAKE, "-S", HERE / "consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={COMPILER}",
        )
        run(CMAKE, "--build", build)
        self.assertEqual(run(build / "example_engine", self.root / "disk of cmake"), EXPECTED)

    def test_pkg_config(self):
        program = self.root / "example"
        flags = self.pkg_config("--cflags", "--libs")
        rpath = f"-Wl,-rpath,{self.shared_object.parent}"
        source = HERE / "example_engine.c"
        run(COMPILER, *WARNINGS, source, *flags, rpath, "-o", program)
        self.assertEqual(run(program, self.root / "disk of pkg-config"), EXPECTED)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
