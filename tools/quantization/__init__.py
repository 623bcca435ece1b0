"""The parts of tools/bench_quant.py."""
