//! Which elements of a weight share a scale.

/// Which elements of a weight of codes share a scale and, perhaps, a zero point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channels {
    /// Those with the same index of this axis: the scales are `[dimension]`. If the scales are `[]`, all elements share one.
    Axis(usize),
    /// Those of one block of neighbours along an axis. The scales have the shape of the weight, but along the axis they have
    /// the number of blocks.
    Blocks {
        /// The axis.
        axis: usize,
        /// The elements of a block, more than 0. The last block of a dimension may have fewer.
        size: usize,
    },
}

impl From<usize> for Channels {
    fn from(axis: usize) -> Self {
        Self::Axis(axis)
    }
}

impl Channels {
    /// The axis.
    #[must_use]
    pub fn axis(self) -> usize {
        match self {
            Self::Axis(axis) | Self::Blocks { axis, .. } => axis,
        }
    }

    /// The same along another axis.
    #[must_use]
    pub fn along(self, axis: usize) -> Self {
        match self {
            Self::Axis(_) => Self::Axis(axis),
            Self::Blocks { size, .. } => Self::Blocks { axis, size },
        }
    }

    /// The shape of the scales of a weight of this shape; `None` where the weight has no such axis, or blocks have no
    /// elements.
    #[must_use]
    pub fn of(self, shape: &[usize]) -> Option<Vec<usize>> {
        let dim = *shape.get(self.axis())?;
        match self {
            Self::Axis(_) => Some(vec![dim]),
            Self::Blocks { size: 0, .. } => None,
            Self::Blocks { axis, size } => {
                let mut shape = shape.to_vec();
                shape[axis] = dim.div_ceil(size);
                Some(shape)
            }
        }
    }
}

/// Which scale each element has, from the first element on.
pub(super) struct Runs {
    /// The elements of an index of the axis.
    inner: usize,
    /// The dimension of the axis.
    dim: usize,
    /// How many indices of the axis share a scale.
    size: usize,
    /// Whether the scales have the other dimensions too.
    blocks: bool,
    /// The next element: before the axis, along it, after it.
    at: [usize; 3],
}

impl Runs {
    /// For a weight of a shape and so many scales.
    pub(super) fn new(shape: &[usize], channels: Channels, scales: usize) -> Self {
        let (axis, size, blocks) = match channels {
            Channels::Blocks { axis, size } => (axis, size, true),
            Channels::Axis(axis) => (axis, 1, false),
        };
        if scales == 1 && !blocks {
            return Self { inner: usize::MAX, dim: 1, size: 1, blocks, at: [0; 3] };
        }
        Self { inner: shape[axis + 1..].iter().product(), dim: shape[axis], size, blocks, at: [0; 3] }
    }

    /// Calls `f` on the pieces of the next elements that share a scale, with the index of the scale.
    pub(super) fn pieces<T>(&mut self, mut elements: &[T], mut f: impl FnMut(usize, &[T])) {
        while !elements.is_empty() {
            let [outer, along, after] = self.at;
            let (scale, left) = match self.blocks {
                false => (along, self.inner - after),
                true => {
                    let block = along / self.size;
                    let scale = (outer * self.dim.div_ceil(self.size) + block) * self.inner + after;
                    // Neighbours of a block are neighbours in memory along the last axis only.
                    let end = ((block + 1) * self.size).min(self.dim);
                    (scale, if self.inner == 1 { end - along } else { 1 })
                }
            };
            let (now, later) = elements.split_at(elements.len().min(left));
            f(scale, now);
            elements = later;
            self.advance(now.len());
        }
    }

    fn advance(&mut self, elements: usize) {
        let [outer, along, after] = &mut self.at;
        if self.blocks && self.inner == 1 {
            *along += elements;
        } else {
            *after += elements;
            if *after == self.inner {
                (*after, *along) = (0, *along + 1);
            }
        }
        if *along == self.dim {
            (*along, *outer) = (0, *outer + 1);
        }
    }
}
