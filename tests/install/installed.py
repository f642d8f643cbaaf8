# SPDX-License-Identifier: Apache-2.0
"""An installed Cohort in a folder that nobody may write to, and an ordinary user who builds
and runs there.
"""
import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
LONG = os.environ.get("COHORT_LONG") == "1"
CACHING_COMPILERS = Path("/usr/lib/ccache")

NOBODY = 65534


def run(*command, code=0, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          timeout=LIMIT_S, **more)
    if done.returncode != code:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def ordinary_user(*readable):
    """A command prefix under which the rest of a command is an ordinary user's, who can read
    `readable`. Root becomes another user; where LibTorch lies in a folder of root's alone, one
    who may read everything; and where no such user can be made, root without its rights."""
    if os.geteuid() != 0:
        return []
    other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    reads = "-all,+dac_read_search"
    users = [other, [*other, "--securebits=+no_setuid_fixup", f"--inh-caps={reads}",
                     f"--ambient-caps={reads}", f"--bounding-set={reads}"],
             ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]]
    for user in users:
        if all(subprocess.run([*user, "test", "-r", path], check=False,
                              stderr=subprocess.DEVNULL).returncode == 0 for path in readable):
            return user
    raise AssertionError(f"no ordinary user can read {readable}")


def keep(made, kept):
    """A copy for the next run, whole or not at all, though another run may do the same; none
    where it cannot be written."""
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{kept.name}_", dir=kept.parent) as folder:
            whole = shutil.copytree(made, Path(folder) / "whole")
            shutil.rmtree(kept, ignore_errors=True)
            whole.rename(kept)


class InstalledTest(unittest.TestCase):
    """Tests of what is installed from the folder `built`."""
    built = ROOT / "build/release"
    generator = "Ninja"

    @classmethod
    def setUpClass(cls):
        cls.scratch = Path(tempfile.mkdtemp(prefix="cohort_install_"))
        cls.addClassCleanup(cls.remove)
        cls.scratch.chmod(0o755)
        cls.prefix = cls.scratch / "prefix"
        cls.home = cls.scratch / "home"  # all that the ordinary user may write to
        cls.home.mkdir()
        run("cmake", "--install", cls.built, "--prefix", cls.prefix)
        for folder, _, files in os.walk(cls.prefix):
            for name in files:
                path = Path(folder) / name
                path.chmod(path.stat().st_mode & ~0o222)
            os.chmod(folder, 0o555)
        cls.environment = {**os.environ, "HOME": str(cls.home), "TMPDIR": str(cls.home),
                           "PKG_CONFIG_PATH": str(cls.prefix / "lib/pkgconfig")}
        for name in ("XDG_CACHE_HOME", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
            cls.environment.pop(name, None)
        cls.keep_what_is_compiled()
        cls.torch = run("pkg-config", "--variable=torch", "cohort",
                        env=cls.environment).strip()
        cls.user = ordinary_user(ROOT / "examples/single.cpp", Path(cls.torch) / "include")
        if cls.user:
            owner = [NOBODY] * 2 if "--clear-groups" in cls.user else [0, 0]
            for folder, _, files in os.walk(cls.home):
                for path in (folder, *(Path(folder) / name for name in files)):
                    shutil.chown(path, *owner)

    @classmethod
    def keep_what_is_compiled(cls):
        """Compiling takes most of the time, and is not done again where source, headers, flags
        and compiler are those of the last time. The user has a copy of what is kept."""
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        kept = Path(os.environ.get("COHORT_CACHE") or Path(caches) / "cohort") / "installed_ccache"
        copy = cls.home / "ccache"
        if not (CACHING_COMPILERS / "g++").exists():
            return
        with contextlib.suppress(OSError):  # there may be none, or another run may replace it
            shutil.copytree(kept, copy)  # some is enough
        cls.environment |= {
            "PATH": f"{CACHING_COMPILERS}:{os.environ['PATH']}", "CCACHE_DIR": str(copy),
            "CCACHE_BASEDIR": str(cls.scratch), "CCACHE_NOHASHDIR": "1",
            "CCACHE_MAXSIZE": "100M"}
        cls.addClassCleanup(keep, copy, kept)

    @classmethod
    def remove(cls):
        for folder, _, _ in os.walk(cls.prefix):
            os.chmod(folder, 0o755)
        shutil.rmtree(cls.scratch)

    def as_user(self, *command, code=0):
        return run(*self.user, *command, code=code, env=self.environment, cwd=self.home)

    def build(self, project):
        folder = self.home / project
        self.as_user("cmake", "-S", ROOT / "examples" / project, "-B", folder,
                     "-G", self.generator, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                     "-DCMAKE_BUILD_TYPE=Release")
        self.as_user("cmake", "--build", folder)
        return folder

    def example(self, name):
        """Compiled with what is installed, in the long form. In the short form the build's own,
        from the same text: data_parallel shows that pkg-config has all that it takes."""
        built = self.built / "bin" / name
        return self.program(f"examples/{name}.cpp") if LONG or not built.exists() else built

    def program(self, source):
        """Compiled by pkg-config, once for each text."""
        name = hashlib.sha256((ROOT / source).read_bytes()).hexdigest()[:16]
        program = self.home / f"{Path(source).stem}_{name}"
        if not program.exists():
            flags, libraries = (self.as_user("pkg-config", which, "cohort").split()
                                for which in ("--cflags", "--libs"))
            compiled = program.with_suffix(".o")
            self.as_user("g++", "-O1", "-c", ROOT / source, *flags, "-o", compiled)
            self.as_user("g++", compiled, *libraries, "-o", program)
        return program

    def launch(self, *program, ranks=2):
        return self.as_user(self.prefix / "bin/cohort", "launch", "-n", str(ranks), "--",
                            *program)
