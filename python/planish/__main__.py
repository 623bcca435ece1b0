"""`python -m planish`: the program, with the same arguments."""

import os
import sys

from ._binary import binary

if __name__ == "__main__":
    path = binary()
    os.execv(path, [path, *sys.argv[1:]])
