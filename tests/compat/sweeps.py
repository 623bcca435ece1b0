"""What the checks of sweeps on several machines share."""

import sys


def check_tables(alone, other, engine):
    """Ends the check unless the tables of an engine's folder are those of one process byte for byte."""
    for table in ("table.json", "table.csv"):
        if (alone / table).read_bytes() != (other / table).read_bytes():
            sys.exit(f"{table} of {engine} differs from that of one process")
