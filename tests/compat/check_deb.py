#!/usr/bin/env python3
"""Unpacks the Debian package into an empty root and uses what is there, without installing it.

    check_deb.py PACKAGE CHECKPOINT PROGRAM

The control file names libraries of Debian that are there, and no person; the program runs, shows its manual page by `man -l`, and compiles CHECKPOINT;
PROGRAM, in C, is built with the header and the library by pkg-config and runs on the same checkpoint. Prints the size of the package. Needs Debian's
dpkg, man-db, gcc and pkg-config, and ONNX Runtime in .deps.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

FILES = (
    "usr/bin/planish",
    "usr/include/planish.h",
    "usr/lib/libplanish_c.so.0",
    "usr/lib/pkgconfig/planish.pc",
    "usr/share/bash-completion/completions/planish",
    "usr/share/doc/planish/README.md",
    "usr/share/doc/planish/docs/cli.md",
    "usr/share/fish/vendor_completions.d/planish.fish",
    "usr/share/man/man1/planish-compile.1.gz",
    "usr/share/man/man1/planish.1.gz",
    "usr/share/zsh/vendor-completions/_planish",
)
# The C library, and what GCC's own code needs.
DEPENDS = {"libc6", "libgcc-s1", "libstdc++6"}


def run(*words, **variables):
    """What a command prints; an error where it fails."""
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def present(root: Path, name: str) -> Path:
    """A file of the package; dpkg compresses long texts of documentation."""
    path = root / name
    packed = path.with_name(path.name + ".gz")
    assert path.is_file() or packed.is_file(), f"the package has no {name}"
    return path if path.is_file() else packed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("package", "checkpoint", "program"):
        parser.add_argument(name, type=lambda text: Path(text).resolve())
    a = parser.parse_args()
    field = lambda name: run("dpkg-deb", "--field", a.package, name).strip()
    print(f"{a.package.name}: {a.package.stat().st_size / 1e6:.1f} MB, installed {int(field('Installed-Size')) / 1e3:.1f} MB")
    depends = {one.split()[0] for one in field("Depends").split(",")}
    print(f"Depends: {field('Depends')}")
    assert "libc6" in depends and depends <= DEPENDS, depends
    version = field("Version")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        run("dpkg", "-x", a.package, root)
        files = {name: present(root, name) for name in FILES}
        assert os.readlink(root / "usr/lib/libplanish_c.so") == "libplanish_c.so.0"
        dynamic = run("objdump", "-p", files["usr/lib/libplanish_c.so.0"]).splitlines()
        assert ["SONAME", "libplanish_c.so.0"] in [line.split() for line in dynamic], "the library for C has no name"
        planish = files["usr/bin/planish"]
        said = run(planish, "--version")
        assert said == f"planish {version.split('-')[0]}\n", said
        page = run("man", "-l", files["usr/share/man/man1/planish-compile.1.gz"], MANWIDTH="80", LC_ALL="C.UTF-8")
        assert "planish-compile" in page and "--recipe" in page, page[:500]
        run(planish, "compile", a.checkpoint, "-o", Path(folder) / "artifact", "--verify")
        program = Path(folder) / "program"
        paths = {"PKG_CONFIG_PATH": f"{root}/usr/lib/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": str(root)}
        flags = run("pkg-config", "--cflags", "--libs", "planish", **paths).split()
        run("gcc", "-Wall", "-Wextra", "-Werror", a.program, *flags, "-o", program)
        lines = run(program, a.checkpoint, Path(folder) / "by-c", "2", "7", "3", LD_LIBRARY_PATH=f"{root}/usr/lib").splitlines()
        print("\n".join(lines))
        assert lines[0] == said.strip() and any(line.startswith("sentence_embedding: ") for line in lines)
    print("the package is whole")


if __name__ == "__main__":
    main()
