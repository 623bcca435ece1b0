//! Values in memory, with strides.

use planish_ir::DType;

use super::Place;

/// A tensor in memory: strides are in elements; 0 repeats an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) place: Place,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// The strides of a tensor without gaps.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

impl View {
    pub(crate) fn contiguous(place: Place, dtype: DType, shape: Vec<usize>) -> Self {
        let strides = row_major(&shape);
        Self { place, dtype, shape, strides }
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// Whether its elements lie one after the other, in row-major order.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.elements() == 0
            || self.merged(&[]).is_some_and(|(sizes, strides)| {
                sizes.iter().zip(&strides).all(|(size, stride)| *size == 1 || *stride == 1) && sizes.len() <= 1
            })
    }

    /// Sizes and strides with neighbouring axes merged where they can be, those of size 1 left out. Axes in `apart` are
    /// not merged with the axis after them.
    fn merged(&self, apart: &[usize]) -> Option<(Vec<usize>, Vec<usize>)> {
        let (mut sizes, mut strides): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut open = false;
        for axis in 0..self.shape.len() {
            let (size, stride) = (self.shape[axis], self.strides[axis]);
            if size != 1 {
                match (sizes.last_mut(), strides.last_mut()) {
                    (Some(last), Some(step)) if open && *step == stride.checked_mul(size)? => {
                        *last *= size;
                        *step = stride;
                    }
                    _ => {
                        sizes.push(size);
                        strides.push(stride);
                    }
                }
                open = true;
            }
            if apart.contains(&axis) {
                open = false;
            }
        }
        Some((sizes, strides))
    }

    /// The element from `elements` on.
    pub(crate) fn after(&self, elements: usize) -> Place {
        Place { base: self.place.base, offset: self.place.offset + elements * self.dtype.size() }
    }

    pub(crate) fn transpose(&self, perm: &[usize]) -> Self {
        let of = |from: &[usize]| perm.iter().map(|axis| from[*axis]).collect();
        Self { place: self.place, dtype: self.dtype, shape: of(&self.shape), strides: of(&self.strides) }
    }

    pub(crate) fn slice(&self, axis: usize, start: usize, end: usize) -> Self {
        let mut slice = self.clone();
        slice.shape[axis] = end - start;
        slice.place = self.after(start * self.strides[axis]);
        slice
    }

    /// The view broadcast to a shape of at least as many axes.
    pub(crate) fn expand(&self, shape: &[usize]) -> Self {
        let missing = shape.len() - self.shape.len();
        let stride = |axis: usize| match axis.checked_sub(missing) {
            Some(own) if self.shape[own] == shape[axis] => self.strides[own],
            _ => 0,
        };
        let strides = (0..shape.len()).map(stride).collect();
        Self { place: self.place, dtype: self.dtype, shape: shape.to_vec(), strides }
    }

    /// The same elements, in row-major order, under another shape; `None` where that needs a copy.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Option<Self> {
        let result = |strides| Self { place: self.place, dtype: self.dtype, shape: shape.to_vec(), strides };
        if self.elements() == 0 {
            return Some(result(row_major(shape)));
        }
        let (sizes, steps) = self.merged(&[])?;
        let mut strides = vec![0; shape.len()];
        let mut axis = shape.len();
        // From the innermost: the axes of the result that make up each merged axis.
        for (mut size, mut step) in sizes.into_iter().zip(steps).rev() {
            while size > 1 {
                axis = axis.checked_sub(1)?;
                if size % shape[axis] != 0 {
                    return None;
                }
                strides[axis] = step;
                size /= shape[axis];
                step = step.checked_mul(shape[axis])?;
            }
        }
        Some(result(strides))
    }

    /// As a matrix [rows, columns] of the last axis and all others: the elements from a row to the next. `None` where
    /// elements of a row are apart, or rows are at different distances.
    pub(crate) fn rows(&self) -> Option<usize> {
        let (&columns, outer) = self.shape.split_last()?;
        if self.elements() == 0 {
            return Some(columns);
        }
        if columns > 1 && self.strides[outer.len()] != 1 {
            return None;
        }
        let rows: usize = outer.iter().product();
        let matrix = self.reshape(&[rows, columns])?;
        Some(if rows > 1 { matrix.strides[0] } else { columns })
    }
}

/// The axes of several tensors of one shape, merged where all of them can be: sizes, and the strides of each tensor.
pub(crate) fn coalesce(shape: &[usize], tensors: &[&[usize]]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut sizes: Vec<usize> = Vec::new();
    let mut strides: Vec<Vec<usize>> = vec![Vec::new(); tensors.len()];
    for (axis, &size) in shape.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let joins = !sizes.is_empty()
            && tensors.iter().zip(&strides).all(|(own, all)| all.last() == own[axis].checked_mul(size).as_ref());
        match sizes.last_mut().filter(|_| joins) {
            Some(last) => {
                *last *= size;
                strides.iter_mut().zip(tensors).for_each(|(all, own)| {
                    if let Some(last) = all.last_mut() {
                        *last = own[axis];
                    }
                });
            }
            None => {
                sizes.push(size);
                strides.iter_mut().zip(tensors).for_each(|(all, own)| all.push(own[axis]));
            }
        }
    }
    (sizes, strides)
}

#[cfg(test)]
mod tests {
    use super::super::Base;
    use super::*;

    fn view(shape: &[usize]) -> View {
        View::contiguous(Place { base: Base::Input(0), offset: 0 }, DType::F32, shape.to_vec())
    }

    #[test]
    fn reshapes_of_views_need_no_copy_where_axes_stay_together() {
        let heads = view(&[2, 5, 12]).reshape(&[2, 5, 3, 4]).unwrap().transpose(&[0, 2, 1, 3]);
        assert_eq!(heads.strides, [60, 4, 12, 1]);
        assert!(heads.reshape(&[6, 5, 4]).is_none());
        assert_eq!(heads.reshape(&[2, 3, 5, 2, 2]).unwrap().strides, [60, 4, 12, 2, 1]);
        let part = view(&[4, 9]).slice(1, 3, 6);
        assert_eq!((part.place.offset, part.rows()), (12, Some(9)));
        assert_eq!(part.reshape(&[2, 2, 3]).unwrap().strides, [18, 9, 1]);
        assert!(!part.is_contiguous() && view(&[4, 1, 9]).is_contiguous());
        assert!(view(&[1, 7]).slice(1, 0, 3).is_contiguous());
    }

    #[test]
    fn strides_agree_with_indices() {
        let x = view(&[3, 4, 5]).transpose(&[1, 0, 2]).slice(0, 1, 3);
        assert_eq!(x.reshape(&[2, 3, 5, 1]).map(|v| v.strides[..3].to_vec()), Some(vec![5, 20, 1]));
        assert_eq!(view(&[1, 5]).expand(&[2, 3, 5]).strides, [0, 0, 1]);
        let (sizes, strides) = coalesce(&[2, 3, 5], &[&[15, 5, 1], &[0, 0, 1]]);
        assert_eq!((sizes, strides), (vec![6, 5], vec![vec![5, 1], vec![0, 1]]));
    }

    #[test]
    fn rows_of_a_tensor_that_repeats_are_none_at_one_distance() {
        assert_eq!(view(&[5]).expand(&[2, 3, 5]).rows(), Some(0));
        assert_eq!(view(&[2, 1, 5]).expand(&[2, 3, 5]).rows(), None);
        assert_eq!(view(&[7]).rows(), Some(7));
    }
}
