"""Tests of deps.py on a small wheel of our own, without a network: python3 -m unittest discover -s tools"""

import contextlib
import hashlib
import io
import os
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import deps

MEMBERS = {"tiny/data/": "", "tiny/LICENSE": "LICENSE"}
TINY = deps.Component("tiny", "tiny-folder", MEMBERS)


def write_wheel(folder: Path) -> str:
    """A pure wheel `tiny` 1.0; returns its SHA-256."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny/data/a.txt", "a")
        wheel.writestr("tiny/data/below/b.txt", "b")
        wheel.writestr("tiny/LICENSE", "free")
        wheel.writestr("tiny/unwanted.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class FetchTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.index = Path(scratch.name) / "index"
        self.index.mkdir()
        self.deps = Path(scratch.name) / "deps"
        self.lock = Path(scratch.name) / "deps.lock"
        self.pin(write_wheel(self.index))
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index), "PIP_NO_CACHE_DIR": "1"}
        env = mock.patch.dict(os.environ, offline)
        env.start()
        self.addCleanup(env.stop)

    def pin(self, sha256: str) -> None:
        self.lock.write_text(f"# a comment\n\ntiny==1.0 --hash=sha256:{sha256}\n")

    def fetch(self, component: deps.Component = TINY) -> bool:
        """Whether anything was fetched."""
        log = io.StringIO()
        with contextlib.redirect_stderr(log):
            deps.fetch_all([component], self.lock, self.deps)
        return "fetching" in log.getvalue()

    def files(self):
        return sorted(str(p.relative_to(self.deps)) for p in self.deps.rglob("*") if p.is_file())

    def test_one_of_several_versions(self):
        older = self.lock.read_text().splitlines()[-1].replace("tiny==1.0", "tiny==0.9")
        self.lock.write_text(self.lock.read_text() + older + "\n")
        requirements = deps.read_lock(self.lock)
        self.assertTrue(requirements["tiny"].startswith("tiny==1.0 "))
        self.assertTrue(requirements["tiny==0.9"].startswith("tiny==0.9 "))
        self.assertEqual(requirements["tiny==1.0"], requirements["tiny"])

    def test_unpacks_what_is_wanted_and_leaves_nothing_else(self):
        self.assertTrue(self.fetch())
        wanted = ["tiny-folder/.pin", "tiny-folder/LICENSE", "tiny-folder/a.txt", "tiny-folder/below/b.txt"]
        self.assertEqual(self.files(), [".lock", *wanted])
        self.assertEqual((self.deps / "tiny-folder" / "below" / "b.txt").read_text(), "b")

    def test_a_folder_with_the_same_pin_is_left_alone(self):
        self.fetch()
        (self.index / "tiny-1.0-py3-none-any.whl").unlink()
        self.assertFalse(self.fetch())

    def test_a_changed_selection_replaces_the_folder(self):
        self.fetch()
        self.assertTrue(self.fetch(TINY._replace(members={"tiny/LICENSE": "LICENSE"})))
        self.assertEqual(self.files(), [".lock", "tiny-folder/.pin", "tiny-folder/LICENSE"])

    def test_another_hash_is_refused_and_the_old_folder_stays(self):
        self.fetch()
        before = self.files()
        self.pin("0" * 64)
        with self.assertRaisesRegex(deps.DepsError, "not the one tools/deps.lock pins"):
            self.fetch()
        self.assertEqual(self.files(), before)

    def test_an_unreachable_wheel_says_to_check_the_network(self):
        (self.index / "tiny-1.0-py3-none-any.whl").unlink()
        with self.assertRaisesRegex(deps.DepsError, "tiny==1.0: pip could not get the wheel"):
            self.fetch()
        self.assertEqual(self.files(), [".lock"])

    def test_a_member_that_the_wheel_lacks_is_named(self):
        with self.assertRaisesRegex(deps.DepsError, "has no tiny/weights/"):
            self.fetch(TINY._replace(members={"tiny/weights/": ""}))
        self.assertEqual(self.files(), [".lock"])

    def test_what_a_killed_run_left_is_swept(self):
        (self.deps / ".partial" / "new").mkdir(parents=True)
        self.assertTrue(self.fetch())
        self.assertFalse((self.deps / ".partial").exists())

    def test_a_project_without_a_pin_is_named(self):
        with self.assertRaisesRegex(deps.DepsError, "pins no other"):
            self.fetch(TINY._replace(project="other"))


class LockTest(unittest.TestCase):
    def test_the_lock_pins_each_component_by_hash(self):
        requirements = deps.read_lock(deps.ROOT / "tools" / "deps.lock")
        wanted = {requirements.get(component.project) for component in deps.COMPONENTS}
        self.assertEqual(set(requirements.values()), wanted)
        for requirement in requirements.values():
            self.assertRegex(requirement, r"^\S+==\S+ --hash=sha256:[0-9a-f]{64}$")

    def test_a_python_without_pip_is_told_what_to_install(self):
        self.assertIn("install it", deps.explain("/usr/bin/python3: No module named pip"))


if __name__ == "__main__":
    unittest.main()
