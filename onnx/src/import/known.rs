//! Small integer tensors whose elements are known while a graph is imported, as numbers or as
//! symbolic dimensions: what exporters compute shapes with.

use planish_ir::{DType, Dim, Weight};

/// More elements than this are not followed.
pub(super) const MAX_ELEMENTS: usize = 1024;

/// A tensor of integers or booleans (0 and 1) of known elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// Row-major.
    pub(super) elements: Vec<Dim>,
}

impl Known {
    /// A tensor, where it is small enough to be followed, and its elements are of its type: those of 32 bits that leave
    /// them are what a run makes of them.
    pub(super) fn new(dtype: DType, shape: Vec<usize>, elements: Vec<Dim>) -> Option<Self> {
        let in_range = |d: &Dim| d.as_constant().is_none_or(|v| dtype != DType::I32 || i32::try_from(v).is_ok());
        let fits = count(&shape) == Some(elements.len()) && elements.len() <= MAX_ELEMENTS;
        let fits = fits && elements.iter().all(in_range);
        (fits && matches!(dtype, DType::I64 | DType::I32 | DType::Bool)).then_some(Self { dtype, shape, elements })
    }

    /// A vector of 64 bit integers.
    pub(super) fn vector(elements: Vec<Dim>) -> Option<Self> {
        Self::new(DType::I64, vec![elements.len()], elements)
    }

    /// The elements of a weight.
    pub(super) fn of_weight(weight: &Weight) -> Option<Self> {
        if weight.elements() > MAX_ELEMENTS {
            return None;
        }
        let integers: fn(&[u8]) -> i64 = match weight.dtype() {
            DType::I64 => |b| b.try_into().map_or(0, i64::from_le_bytes),
            DType::I32 => |b| b.try_into().map_or(0, |b| i32::from_le_bytes(b).into()),
            DType::Bool => |b| i64::from(b != [0]),
            _ => return None,
        };
        let bytes = weight.read().ok()?;
        let elements = bytes.chunks_exact(weight.dtype().size()).map(|b| Dim::constant(integers(b)));
        Self::new(weight.dtype(), weight.shape().to_vec(), elements.collect())
    }

    /// The tensor as a weight, where no element is symbolic.
    pub(super) fn weight(&self) -> Option<Weight> {
        let values: Option<Vec<i64>> = self.elements.iter().map(Dim::as_constant).collect();
        let bytes: Vec<u8> = match self.dtype {
            DType::I64 => values?.iter().flat_map(|v| v.to_le_bytes()).collect(),
            DType::I32 => values?.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect(),
            _ => values?.iter().map(|v| u8::from(*v != 0)).collect(),
        };
        Weight::inline(self.dtype, self.shape.clone(), bytes)
    }

    /// The elements as numbers.
    pub(super) fn constants(&self) -> Option<Vec<i64>> {
        self.elements.iter().map(Dim::as_constant).collect()
    }

    /// The one element.
    pub(super) fn scalar(&self) -> Option<&Dim> {
        match self.elements.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The same elements under another shape.
    pub(super) fn reshape(&self, shape: Vec<usize>) -> Option<Self> {
        Self::new(self.dtype, shape, self.elements.clone())
    }

    /// The element at indices, one an axis.
    pub(super) fn at(&self, at: &[usize]) -> Option<&Dim> {
        self.elements.get(self.shape.iter().zip(at).fold(0, |place, (size, index)| place * size + index))
    }

    /// A tensor whose elements are a function of their indices; `None` where one is not known.
    pub(super) fn of(dtype: DType, shape: Vec<usize>, element: impl Fn(&[usize]) -> Option<Dim>) -> Option<Self> {
        let count = count(&shape).filter(|&n| n <= MAX_ELEMENTS)?;
        let mut at = vec![0; shape.len()];
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(&at)?);
            for (index, size) in at.iter_mut().zip(&shape).rev() {
                *index += 1;
                if *index < *size {
                    break;
                }
                *index = 0;
            }
        }
        Self::new(dtype, shape, elements)
    }

    /// A tensor of elements of this one: a function says of which indices each is.
    pub(super) fn pick(&self, shape: Vec<usize>, from: impl Fn(&[usize]) -> Option<Vec<usize>>) -> Option<Self> {
        Self::of(self.dtype, shape, |at| self.at(&from(at)?).cloned())
    }

    /// A function of the elements of several tensors, broadcast; `None` where one is not known.
    pub(super) fn map<const N: usize>(
        dtype: DType,
        operands: [&Known; N],
        f: impl Fn([&Dim; N]) -> Option<Dim>,
    ) -> Option<Self> {
        let rank = operands.iter().map(|k| k.shape.len()).max().unwrap_or(0);
        let mut shape = vec![1; rank];
        for operand in operands {
            for (axis, &size) in (rank - operand.shape.len()..).zip(&operand.shape) {
                match (shape[axis], size) {
                    (a, b) if a == b || b == 1 => {}
                    (1, b) => shape[axis] = b,
                    _ => return None,
                }
            }
        }
        let count = count(&shape).filter(|&n| n <= MAX_ELEMENTS)?;
        let element = |position: usize| {
            f(operands.map(|operand| {
                let (mut rest, mut index, mut stride) = (position, 0, 1);
                for axis in (0..rank).rev() {
                    let at = rest % shape[axis];
                    rest /= shape[axis];
                    if let Some(own) = (axis + operand.shape.len()).checked_sub(rank) {
                        if operand.shape[own] != 1 {
                            index += at * stride;
                        }
                        stride *= operand.shape[own];
                    }
                }
                &operand.elements[index]
            }))
        };
        let elements = (0..count).map(element).collect::<Option<Vec<_>>>()?;
        Self::new(dtype, shape, elements)
    }
}

/// The number of elements of a shape, where it fits.
fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// Whether a dimension is zero or more whatever its symbols stand for.
pub(super) fn is_size(dim: &Dim) -> bool {
    dim.summands().all(|(coefficient, _)| coefficient >= 0)
}

/// Whether a dimension is zero or more as soon as one of its symbols is not zero, as of what a model computes on.
pub(super) fn is_length(dim: &Dim) -> bool {
    let least = if dim.as_constant().is_some() { 0 } else { -1 };
    dim.summands().all(|(coefficient, symbols)| coefficient >= if symbols.is_empty() { least } else { 0 })
}

/// Whether two dimensions are equal, where that does not depend on symbols.
pub(super) fn equal(a: &Dim, b: &Dim) -> Option<bool> {
    if a == b {
        return Some(true);
    }
    match (a.as_constant(), b.as_constant()) {
        (Some(_), Some(_)) => Some(false),
        (Some(c), None) if c < 0 && is_size(b) => Some(false),
        (None, Some(c)) if c < 0 && is_size(a) => Some(false),
        _ => None,
    }
}

/// Whether `a < b`, where that does not depend on symbols.
pub(super) fn less(a: &Dim, b: &Dim) -> Option<bool> {
    let difference = b.checked_sub(a)?;
    match difference.as_constant() {
        Some(difference) => Some(difference > 0),
        // b - a = size + positive constant
        None if is_size(&difference.checked_sub(&Dim::constant(1))?) => Some(true),
        None if is_size(&a.checked_sub(b)?) => Some(false),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(texts: &[&str]) -> Vec<Dim> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn elements_broadcast() {
        let a = Known::new(DType::I64, vec![2, 1], dims(&["n", "3"])).unwrap();
        let b = Known::vector(dims(&["1", "m"])).unwrap();
        let sum = Known::map(DType::I64, [&a, &b], |[a, b]| a.checked_add(b)).unwrap();
        assert_eq!(sum.shape, [2, 2]);
        assert_eq!(sum.elements, dims(&["n + 1", "m + n", "4", "m + 3"]));
        let odd = Known::vector(dims(&["1", "2", "3"])).unwrap();
        assert_eq!(Known::map(DType::I64, [&odd, &b], |[a, b]| a.checked_add(b)), None);
    }

    #[test]
    fn comparisons_hold_for_every_size() {
        let [n, n1, minus, zero] = ["n", "n + 1", "-1", "0"].map(|t| t.parse::<Dim>().unwrap());
        assert_eq!(equal(&n, &n), Some(true));
        assert_eq!(equal(&n, &minus), Some(false));
        assert_eq!(equal(&n, &zero), None, "n may be 0");
        assert_eq!(less(&n, &n1), Some(true));
        assert_eq!(less(&n1, &n), Some(false));
        assert_eq!(less(&minus, &n), Some(true));
        assert_eq!(less(&n, &zero), Some(false));
        assert_eq!(less(&zero, &n), None);
        let lengths = ["n", "n - 1", "n + m - 1", "2", "0"].map(|t| is_length(&t.parse().unwrap()));
        assert_eq!(lengths, [true; 5]);
        let others = ["n - 2", "m - n", "n - m + 4", "-1"].map(|t| is_length(&t.parse().unwrap()));
        assert_eq!(others, [false; 4]);
    }
}
