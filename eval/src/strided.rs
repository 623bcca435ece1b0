//! Walking over the elements of several tensors in step, each with its own strides.

/// Row-major strides of a shape, in elements.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// The strides with which a tensor of shape `from` is read as one of shape `to`, to which it
/// broadcasts: 0 along dimensions that repeat it.
pub(crate) fn broadcast(from: &[usize], to: &[usize]) -> Vec<usize> {
    let missing = to.len() - from.len();
    let own = row_major(from).into_iter().zip(from).map(|(stride, &size)| if size == 1 { 0 } else { stride });
    std::iter::repeat_n(0, missing).chain(own).collect()
}

/// A stretch of elements along one dimension, of each of `N` tensors.
pub(crate) struct Run<const N: usize> {
    /// Where it begins.
    pub(crate) start: [usize; N],
    /// From one element to the next.
    pub(crate) step: [usize; N],
    /// How many elements.
    pub(crate) len: usize,
}

impl<const N: usize> Run<N> {
    /// The positions of the elements, in order.
    pub(crate) fn positions(&self) -> impl Iterator<Item = [usize; N]> {
        let mut at = self.start;
        let step = self.step;
        (0..self.len).map(move |_| {
            let here = at;
            at.iter_mut().zip(step).for_each(|(at, step)| *at += step);
            here
        })
    }
}

/// Calls `f` with runs that cover a shape in row-major order. Neighbouring dimensions along which
/// every tensor goes on evenly are walked as one, so that equal shapes, a scalar operand or one
/// that repeats along leading dimensions make few, long runs.
pub(crate) fn walk<const N: usize, E>(
    shape: &[usize],
    strides: [&[usize]; N],
    mut f: impl FnMut(&Run<N>) -> Result<(), E>,
) -> Result<(), E> {
    if shape.contains(&0) {
        return Ok(());
    }
    let mut dims: Vec<(usize, [usize; N])> = Vec::with_capacity(shape.len());
    for (axis, &size) in shape.iter().enumerate().filter(|(_, size)| **size != 1) {
        let step = strides.map(|s| s[axis]);
        match dims.last_mut() {
            Some((outer, steps)) if (0..N).all(|i| steps[i] == step[i] * size) => {
                (*outer, *steps) = (*outer * size, step)
            }
            _ => dims.push((size, step)),
        }
    }
    let (len, step) = dims.pop().unwrap_or((1, [0; N]));
    let mut run = Run { start: [0; N], step, len };
    let mut index = vec![0; dims.len()];
    loop {
        f(&run)?;
        let mut axis = dims.len();
        loop {
            if axis == 0 {
                return Ok(());
            }
            axis -= 1;
            let (size, step) = dims[axis];
            index[axis] += 1;
            run.start.iter_mut().zip(step).for_each(|(start, step)| *start += step);
            if index[axis] < size {
                break;
            }
            index[axis] = 0;
            run.start.iter_mut().zip(step).for_each(|(start, step)| *start -= step * size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions<const N: usize>(shape: &[usize], strides: [&[usize]; N]) -> (usize, Vec<[usize; N]>) {
        let (mut runs, mut out) = (0, Vec::new());
        let done: Result<(), ()> = walk(shape, strides, |run| {
            runs += 1;
            out.extend(run.positions());
            Ok(())
        });
        assert_eq!(done, Ok(()));
        (runs, out)
    }

    #[test]
    fn dimensions_that_go_on_evenly_are_one_run() {
        let strides = row_major(&[2, 3, 4]);
        let (runs, at) = positions(&[2, 3, 4], [&strides, &[0, 0, 0]]);
        assert_eq!(runs, 1);
        assert!(at.into_iter().eq((0..24).map(|i| [i, 0])));
        let bias = broadcast(&[4], &[2, 3, 4]);
        assert_eq!(bias, [0, 0, 1]);
        assert_eq!(positions(&[2, 3, 4], [&strides, &bias]).0, 6);
    }

    #[test]
    fn scalars_and_empty_shapes() {
        assert_eq!(positions(&[], [&[], &[]]), (1, vec![[0, 0]]));
        assert_eq!(positions(&[3, 0], [&[0, 1]]), (0, vec![]));
    }

    #[test]
    fn an_error_ends_the_walk() {
        let mut calls = 0;
        let done = walk(&[2, 2], [&[1, 2]], |_| {
            calls += 1;
            Err("stop")
        });
        assert_eq!((done, calls), (Err("stop"), 1));
    }
}
