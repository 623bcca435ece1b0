//! Lazy weights: expressions over stored bytes that nothing reads until export or evaluation.
//!
//! Passes rewrite expressions through the constructors here; [`Weight::stream`] evaluates one,
//! piece by piece where the expression allows, so that memory follows the largest tensor at most.

mod channels;
mod codebook;
mod codes;
mod convert;
mod dequantized;
mod finite;
mod fit;
mod ggml;
mod low_rank;
mod packed;
mod pad;
mod read;
mod rows;
mod search;
mod slice;
mod small;
mod text;
mod unpack;
mod vectors;
mod walk;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use channels::Channels;
pub use codebook::{BNB4_TABLES, Codebook, FP4, NF4};
pub use codes::{code_range, is_code};
pub use dequantized::Dequantized;
pub use finite::{NotFinite, NumberOf};
pub use fit::{BlockFit, Fitted, Search};
pub use read::{CHUNK_BYTES, WeightError};
pub use small::pack_codes;
pub use text::unpack_text;
pub use unpack::{GgmlBlock, Packing};

use crate::DType;
use crate::ops::Real;

/// Bytes that weights are ranges of: a weight file, or a buffer in tests.
pub trait WeightSource: fmt::Debug + Send + Sync {
    /// The file's name, without folders.
    fn name(&self) -> &str;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// When the range cannot be read, e.g. because the file was truncated meanwhile.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Where the file is, if it is one: lets an export point to its bytes instead of copying them.
    fn file_path(&self) -> Option<&Path>;
}

/// A byte range of a [`WeightSource`].
#[derive(Clone, Debug)]
pub struct StoredRange {
    /// What holds the bytes.
    pub source: Arc<dyn WeightSource>,
    /// Where the first byte is.
    pub offset: u64,
}

impl PartialEq for StoredRange {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset && Arc::ptr_eq(&self.source, &other.source)
    }
}

impl Eq for StoredRange {}

impl Hash for StoredRange {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.name().hash(state);
        self.offset.hash(state);
    }
}

/// How the value of a weight comes about. Elements are little-endian and row-major throughout; those of fewer than 8 bits
/// share bytes as [`DType::bits`] says, and text is bytes in memory that [`unpack_text`] reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WeightExpr {
    /// A range of a file.
    Stored(StoredRange),
    /// Bytes held in memory: for small constants.
    Inline(Arc<[u8]>),
    /// Pseudo-random numbers in [-1, 1) from a seed: for graphs of tests and benches.
    Uniform(u64),
    /// The dimensions of another weight permuted: dimension `i` is its dimension `perm[i]`.
    Transpose(Weight, Vec<usize>),
    /// The elements of another weight converted to this one's type, rounded to nearest even.
    Cast(Weight),
    /// The elements of another weight under another shape.
    Reshape(Weight),
    /// Weights put after each other along an axis.
    Concat(Vec<Weight>, usize),
    /// Another weight, with elements of one number appended at the end of each dimension that is
    /// larger here.
    Pad(Weight, Real),
    /// Codes of this type: a weight divided by scales and rounded, plus zero points; see [`Weight::quantize`]. The parts
    /// are the weight, the scales and, perhaps, the zero points.
    Quantize(Vec<Weight>, Channels),
    /// The numbers that codes stand for; see [`Weight::dequantize`]. The parts are the codes, the scales and, perhaps, the
    /// zero points.
    Dequantize(Vec<Weight>, Channels),
    /// Scales or zero points of blocks that are fitted to a matrix; see [`Weight::fit`]. The parts are the matrix and,
    /// perhaps, the importance of its columns.
    Fitted(Vec<Weight>, BlockFit, Fitted),
    /// Codes of a signed type as those of the unsigned type, and back; see [`Weight::flip_sign`].
    FlipSign(Weight),
    /// The bytes of the elements of another weight, as u8.
    Bytes(Weight),
    /// A weight with each element times a factor by its index along an axis; see [`Weight::scale`]. The parts are the
    /// weight and the factors.
    Scale(Vec<Weight>, usize),
    /// One over the Euclidean norm of each slice of an axis of another weight; see [`Weight::inverse_norms`].
    InverseNorms(Weight, usize),
    /// A matrix plus a product of two; see [`Weight::plus_product`]. The parts are the matrix and the factors of the product.
    PlusProduct(Vec<Weight>),
    /// The slices of an axis of a weight with these indices, in this order.
    Gather(Weight, usize, Arc<[usize]>),
    /// Codes or numbers taken out of a layout of a weight file; see [`Weight::unpack`]. The parts are the packed bytes and,
    /// for some layouts, tables.
    Unpack(Vec<Weight>, Packing),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Inner {
    dtype: DType,
    shape: Vec<usize>,
    expr: WeightExpr,
}

/// A tensor that is known at compile time, held as an expression. Cheap to clone; equal where
/// the expressions are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Weight(Arc<Inner>);

impl Weight {
    fn build(dtype: DType, shape: Vec<usize>, expr: WeightExpr) -> Self {
        Self(Arc::new(Inner { dtype, shape, expr }))
    }

    /// The bytes that a tensor takes. `None` where that leaves `u64`, and for text, whose elements have no fixed size.
    #[must_use]
    pub fn size_of(dtype: DType, shape: &[usize]) -> Option<u64> {
        bytes_of(dtype, shape)
    }

    /// A range of a file. `None` where the size in bytes leaves `u64`, and for text.
    #[must_use]
    pub fn stored(dtype: DType, shape: Vec<usize>, range: StoredRange) -> Option<Self> {
        let bytes = bytes_of(dtype, &shape)?;
        range.offset.checked_add(bytes)?;
        Some(Self::build(dtype, shape, WeightExpr::Stored(range)))
    }

    /// Bytes held in memory. `None` where their number does not fit type and shape.
    #[must_use]
    pub fn inline(dtype: DType, shape: Vec<usize>, bytes: impl Into<Arc<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        let fits = match dtype {
            DType::String => text::unpack_text(&bytes).map(|elements| elements.len()) == elements_of(&shape),
            _ => bytes_of(dtype, &shape) == Some(bytes.len() as u64),
        };
        fits.then(|| Self::build(dtype, shape, WeightExpr::Inline(bytes)))
    }

    /// Text held in memory. `None` where the number of elements does not fit the shape, or one takes 4 GiB.
    #[must_use]
    pub fn text<T: AsRef<[u8]>>(shape: Vec<usize>, elements: &[T]) -> Option<Self> {
        Self::inline(DType::String, shape, text::pack(elements)?)
    }

    /// A scalar, converted to `dtype`.
    #[must_use]
    pub fn scalar(dtype: DType, value: f64) -> Self {
        Self::build(dtype, Vec::new(), WeightExpr::Inline(convert::encode(dtype, &[value]).into()))
    }

    /// A vector of 64 bit integers.
    #[must_use]
    pub fn integers(values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::build(DType::I64, vec![values.len()], WeightExpr::Inline(bytes.into()))
    }

    /// Numbers converted to `dtype`. `None` where their number does not fit the shape.
    #[must_use]
    pub fn numbers(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Option<Self> {
        Self::inline(dtype, shape, convert::encode(dtype, values))
    }

    /// Pseudo-random numbers in [-1, 1). `None` where the size in bytes leaves `u64`, or operators do not compute with
    /// the type.
    #[must_use]
    pub fn uniform(dtype: DType, shape: Vec<usize>, seed: u64) -> Option<Self> {
        bytes_of(dtype, &shape).filter(|_| dtype.is_computed())?;
        Some(Self::build(dtype, shape, WeightExpr::Uniform(seed)))
    }

    /// The dimensions permuted; two transposes in a row become one. `None` where `perm` is no
    /// permutation of the dimensions, and for text.
    #[must_use]
    pub fn transpose(&self, perm: &[usize]) -> Option<Self> {
        let mut seen = vec![false; self.shape().len()];
        for &p in perm {
            if std::mem::replace(seen.get_mut(p)?, true) {
                return None;
            }
        }
        if perm.len() != seen.len() || !self.is_movable() {
            return None;
        }
        let shape = perm.iter().map(|&p| self.shape()[p]).collect();
        let (of, perm) = match self.expr() {
            WeightExpr::Transpose(of, first) => (of.clone(), perm.iter().map(|&p| first[p]).collect()),
            _ => (self.clone(), perm.to_vec()),
        };
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Some(of);
        }
        Some(Self::build(self.dtype(), shape, WeightExpr::Transpose(of, perm)))
    }

    /// The elements converted; from what they were widened from, where they were. Those that [`pad`](Self::pad)
    /// appended stay finite where they are. `None` from text and to it.
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Option<Self> {
        if dtype == self.dtype() {
            return Some(self.clone());
        }
        // What the type takes at the number of elements may leave 64 bits.
        bytes_of(dtype, self.shape()).filter(|_| self.dtype() != DType::String)?;
        if let WeightExpr::Cast(of) = self.expr()
            && of.dtype().widens_to(self.dtype())
        {
            return of.cast(dtype);
        }
        if let WeightExpr::Pad(of, value) = self.expr() {
            let cast = of.cast(dtype)?;
            if cast.is_movable() {
                let padded = WeightExpr::Pad(cast, Real(pad::nearest(dtype, value.0)));
                return Some(Self::build(dtype, self.shape().to_vec(), padded));
            }
        }
        Some(Self::build(dtype, self.shape().to_vec(), WeightExpr::Cast(self.clone())))
    }

    /// The same elements under another shape. `None` where their number differs.
    #[must_use]
    pub fn reshape(&self, shape: &[usize]) -> Option<Self> {
        if elements_of(shape)? != self.elements() {
            return None;
        }
        let rebuilt = |expr| Self::build(self.dtype(), shape.to_vec(), expr);
        Some(match self.expr() {
            _ if shape == self.shape() => self.clone(),
            leaf @ (WeightExpr::Stored(_) | WeightExpr::Inline(_) | WeightExpr::Uniform(_)) => rebuilt(leaf.clone()),
            WeightExpr::Reshape(of) => of.reshape(shape)?,
            _ => rebuilt(WeightExpr::Reshape(self.clone())),
        })
    }

    /// Weights after each other along `axis`. `None` where types or other dimensions differ, and for text.
    #[must_use]
    pub fn concat(parts: &[Weight], axis: usize) -> Option<Self> {
        let first = parts.first()?;
        let mut shape = first.shape().to_vec();
        *shape.get_mut(axis)? = 0;
        for part in parts {
            let same = part.dtype() == first.dtype()
                && part.shape().len() == shape.len()
                && part.shape().iter().zip(&shape).enumerate().all(|(i, (a, b))| i == axis || a == b);
            if !same {
                return None;
            }
            shape[axis] = shape[axis].checked_add(part.shape()[axis])?;
        }
        bytes_of(first.dtype(), &shape).filter(|_| first.is_movable())?;
        Some(Self::build(first.dtype(), shape, WeightExpr::Concat(parts.to_vec(), axis)))
    }

    /// Elements of one number appended at the end of each dimension, up to `shape`. The number is
    /// rounded to the element type; a finite one stays finite, as the nearest that the type has.
    /// `None` where the rank differs, a dimension would shrink, the size in bytes leaves `u64`, and for text.
    #[must_use]
    pub fn pad(&self, shape: &[usize], value: f64) -> Option<Self> {
        let grows = shape.len() == self.shape().len() && shape.iter().zip(self.shape()).all(|(new, old)| new >= old);
        bytes_of(self.dtype(), shape).filter(|_| grows && self.is_movable())?;
        if shape == self.shape() {
            return Some(self.clone());
        }
        let value = Real(pad::nearest(self.dtype(), value));
        let of = match self.expr() {
            WeightExpr::Pad(of, same) if *same == value => of,
            _ => self,
        };
        Some(Self::build(self.dtype(), shape.to_vec(), WeightExpr::Pad(of.clone(), value)))
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Dimensions.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// How the value comes about.
    #[must_use]
    pub fn expr(&self) -> &WeightExpr {
        &self.0.expr
    }

    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// The size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self.expr() {
            WeightExpr::Inline(bytes) => bytes.len() as u64,
            // It was checked when the weight was built.
            _ => bytes_of(self.dtype(), self.shape()).unwrap_or(u64::MAX),
        }
    }

    /// Whether elements can be moved: all take as many bits.
    fn is_movable(&self) -> bool {
        self.dtype() != DType::String
    }

    /// The elements of text that is held in memory.
    #[must_use]
    pub fn as_text(&self) -> Option<Vec<&[u8]>> {
        match self.expr() {
            WeightExpr::Inline(bytes) if self.dtype() == DType::String => text::unpack_text(bytes),
            _ => None,
        }
    }

    /// The file range, where the weight is just that.
    #[must_use]
    pub fn as_stored(&self) -> Option<&StoredRange> {
        match self.expr() {
            WeightExpr::Stored(range) => Some(range),
            _ => None,
        }
    }
}

/// The bytes of a tensor, or `None` where that leaves `u64`, and for text. The number of elements is counted
/// without the zero dimensions too, so that it cannot overflow in any order.
fn bytes_of(dtype: DType, shape: &[usize]) -> Option<u64> {
    let elements = shape.iter().filter(|&&d| d != 0).try_fold(1u64, |n, &d| n.checked_mul(d as u64))?;
    let bytes = match dtype {
        DType::String => return None,
        _ if dtype.is_packed() => elements.checked_mul(dtype.bits() as u64)?.div_ceil(8),
        _ => elements.checked_mul(dtype.size() as u64)?,
    };
    Some(if shape.contains(&0) { 0 } else { bytes })
}

/// The number of elements of a shape, or `None` where that leaves `usize`, in any order.
fn elements_of(shape: &[usize]) -> Option<usize> {
    let elements = shape.iter().filter(|&&d| d != 0).try_fold(1usize, |n, &d| n.checked_mul(d))?;
    Some(if shape.contains(&0) { 0 } else { elements })
}
