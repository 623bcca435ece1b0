"""How close embeddings are to those of the reference."""

import numpy


def nearest(rows):
    """For each of the rows [texts, features] of length 1, the place of the other row with the largest cosine."""
    similar = rows @ rows.T
    numpy.fill_diagonal(similar, -numpy.inf)
    return similar.argmax(axis=1)


def embeddings(wanted, given):
    """Mean and least cosine, and the share of rows whose nearest other row is the same, in %."""
    cosines = (wanted * given).sum(axis=1)
    kept = (nearest(wanted) == nearest(given)).mean()
    return {"mean": float(cosines.mean()), "least": float(cosines.min()), "neighbours": float(kept) * 100}
