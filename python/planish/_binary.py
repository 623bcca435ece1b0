"""Finds the program that the wheel installed."""

import os
import sys
import sysconfig


def binary() -> str:
    """The path of the program `planish`: beside this package (`pip install --target`), of this environment, or of the user's scheme."""
    name = "planish" + (sysconfig.get_config_var("EXE") or "")
    user = "posix_user" if os.name == "posix" else "nt_user"
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    folders = [beside, sysconfig.get_path("scripts"), os.path.join(sys.prefix, "bin"), sysconfig.get_path("scripts", scheme=user)]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"the program `{name}` is in none of {', '.join(folders)}: install it with `pip install planish`")
