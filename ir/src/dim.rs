//! Symbolic dimensions: polynomials with integer coefficients over named symbols, kept in a
//! canonical order so that equal polynomials compare equal.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::DType;

/// The name of a size that is known only when the graph runs, e.g. `batch_size`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(Arc<str>);

impl Symbol {
    /// A symbol of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

impl Deref for Symbol {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Symbol {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What each symbol stands for in one run.
pub type Bindings = BTreeMap<Symbol, i64>;

/// A product of symbols with a non-zero coefficient.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    /// Sorted; a power is a repeated symbol.
    symbols: Vec<Symbol>,
    coefficient: i64,
}

/// One dimension of a shape: a constant, a symbol, or sums and products of these, such as
/// `past_sequence_length + sequence_length`. Symbols stand for sizes of at least zero.
///
/// Arithmetic is checked: `None` means that a coefficient left the range of `i64`, or that there
/// were more than [`Dim::MAX_PRODUCTS`] different products of symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    /// Sorted by symbols, each product once, no zero coefficient.
    terms: Vec<Term>,
    constant: i64,
}

impl Dim {
    /// The most products of symbols that one dimension is a sum of.
    pub const MAX_PRODUCTS: usize = 1024;

    /// A known size.
    #[must_use]
    pub fn constant(value: i64) -> Self {
        Self { terms: Vec::new(), constant: value }
    }

    /// A size known only at run time.
    #[must_use]
    pub fn symbol(name: &str) -> Self {
        Self { terms: vec![Term { symbols: vec![Symbol::new(name)], coefficient: 1 }], constant: 0 }
    }

    /// The value, where it does not depend on a symbol.
    #[must_use]
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The symbol, where the dimension is just one.
    #[must_use]
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match (self.terms.as_slice(), self.constant) {
            ([Term { symbols, coefficient: 1 }], 0) if symbols.len() == 1 => symbols.first(),
            _ => None,
        }
    }

    /// The symbol and its coefficient, where the dimension is a multiple of just one.
    #[must_use]
    pub fn as_multiple(&self) -> Option<(&Symbol, i64)> {
        match (self.terms.as_slice(), self.constant) {
            ([Term { symbols, coefficient: count @ 1.. }], 0) if symbols.len() == 1 => Some((symbols.first()?, *count)),
            _ => None,
        }
    }

    /// The symbol that the dimension is a multiple of, and what it is where the dimension has a size; `None` of other dimensions, and
    /// where the size is no such multiple.
    #[must_use]
    pub fn solve(&self, size: i64) -> Option<(&Symbol, i64)> {
        let (symbol, count) = self.as_multiple()?;
        (size % count == 0).then(|| (symbol, size / count))
    }

    /// Every symbol that occurs, with repeats.
    pub fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.terms.iter().flat_map(|t| &t.symbols)
    }

    /// The summands as (coefficient, product of symbols); the constant last, if not zero or alone.
    pub fn summands(&self) -> impl Iterator<Item = (i64, &[Symbol])> {
        let constant = (self.constant != 0 || self.terms.is_empty()).then_some((self.constant, &[][..]));
        self.terms.iter().map(|t| (t.coefficient, t.symbols.as_slice())).chain(constant)
    }

    /// The size in one run, or `None` when a symbol is not bound or the result leaves `i64`.
    #[must_use]
    pub fn evaluate(&self, bindings: &Bindings) -> Option<i64> {
        let mut sum = self.constant;
        for term in &self.terms {
            let mut product = term.coefficient;
            for symbol in &term.symbols {
                product = product.checked_mul(*bindings.get(symbol)?)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// `self + other`.
    #[must_use]
    pub fn checked_add(&self, other: &Dim) -> Option<Dim> {
        Self::collect(self.summands().chain(other.summands()).map(|(c, s)| Some((c, s.to_vec()))))
    }

    /// `self - other`.
    #[must_use]
    pub fn checked_sub(&self, other: &Dim) -> Option<Dim> {
        let negated = other.summands().map(|(c, s)| Some((c.checked_neg()?, s.to_vec())));
        Self::collect(self.summands().map(|(c, s)| Some((c, s.to_vec()))).chain(negated))
    }

    /// `self * other`.
    #[must_use]
    pub fn checked_mul(&self, other: &Dim) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_constant(), other.as_constant()) {
            return a.checked_mul(b).map(Dim::constant);
        }
        let products = self
            .summands()
            .flat_map(|(a, x)| other.summands().map(move |(b, y)| Some((a.checked_mul(b)?, [x, y].concat()))));
        Self::collect(products)
    }

    /// `self / divisor` where that leaves no remainder whatever the symbols stand for; the divisor
    /// is a non-zero constant or a single product.
    #[must_use]
    pub fn exact_div(&self, divisor: &Dim) -> Option<Dim> {
        let mut parts = divisor.summands();
        let (coefficient, symbols) = parts.next()?;
        if parts.next().is_some() || coefficient == 0 {
            return None;
        }
        Self::collect(self.summands().map(|(c, s)| {
            if c == 0 {
                return Some((0, Vec::new()));
            }
            let quotient = (c.checked_rem(coefficient)? == 0).then(|| c / coefficient)?;
            let mut left = s.to_vec();
            for symbol in symbols {
                left.remove(left.iter().position(|l| l == symbol)?);
            }
            Some((quotient, left))
        }))
    }

    fn collect(summands: impl Iterator<Item = Option<(i64, Vec<Symbol>)>>) -> Option<Dim> {
        let mut sums: BTreeMap<Vec<Symbol>, i64> = BTreeMap::new();
        for summand in summands {
            let (coefficient, mut symbols) = summand?;
            symbols.sort();
            let sum = sums.entry(symbols).or_insert(0);
            *sum = sum.checked_add(coefficient)?;
            if sums.len() > Self::MAX_PRODUCTS {
                return None;
            }
        }
        let constant = sums.remove(&Vec::new()).unwrap_or(0);
        let terms =
            sums.into_iter().filter(|(_, c)| *c != 0).map(|(symbols, coefficient)| Term { symbols, coefficient });
        Some(Dim { terms: terms.collect(), constant })
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Dim::constant(value)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (coefficient, symbols)) in self.summands().enumerate() {
            match (i, coefficient < 0) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            let magnitude = coefficient.unsigned_abs();
            if symbols.is_empty() {
                write!(f, "{magnitude}")?;
                continue;
            }
            if magnitude != 1 {
                write!(f, "{magnitude}*")?;
            }
            for (k, symbol) in symbols.iter().enumerate() {
                write!(f, "{}{symbol}", if k == 0 { "" } else { "*" })?;
            }
        }
        Ok(())
    }
}

/// The dimensions of a tensor, outermost first; a scalar has none. Cheap to clone: most results have the
/// shape of an operand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(Arc<[Dim]>);

impl Shape {
    /// A shape of these dimensions.
    pub fn new(dims: impl IntoIterator<Item = Dim>) -> Self {
        Self(dims.into_iter().collect())
    }

    /// A shape of known sizes.
    #[must_use]
    pub fn of(sizes: &[i64]) -> Self {
        Self::new(sizes.iter().copied().map(Dim::constant))
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The product of the dimensions, or `None` when a coefficient leaves `i64`.
    #[must_use]
    pub fn elements(&self) -> Option<Dim> {
        self.0.iter().try_fold(Dim::constant(1), |product, dim| product.checked_mul(dim))
    }

    /// The sizes, where none depends on a symbol.
    #[must_use]
    pub fn as_constant(&self) -> Option<Vec<i64>> {
        self.0.iter().map(Dim::as_constant).collect()
    }

    /// The sizes in one run, or `None` when a symbol is not bound or a size is negative or too large.
    #[must_use]
    pub fn evaluate(&self, bindings: &Bindings) -> Option<Vec<usize>> {
        self.0.iter().map(|d| usize::try_from(d.evaluate(bindings)?).ok()).collect()
    }

    /// The same shape with dimension `axis` replaced.
    #[must_use]
    pub fn with_dim(&self, axis: usize, dim: Dim) -> Self {
        let mut dims = self.0.to_vec();
        dims[axis] = dim;
        Self::new(dims)
    }
}

impl Deref for Shape {
    type Target = [Dim];
    fn deref(&self) -> &[Dim] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

/// Element type and shape of a value, printed as `f32[batch_size, 128]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Shape,
}

impl TensorType {
    /// The type of tensors with these elements and dimensions.
    #[must_use]
    pub fn new(dtype: DType, shape: Shape) -> Self {
        Self { dtype, shape }
    }

    /// Bytes a tensor of this type takes, where its size is known and fits; text has none.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.bytes_of(u64::try_from(self.shape.elements()?.as_constant()?).ok()?)
    }

    /// The same in one run, with the sizes of its symbols.
    #[must_use]
    pub fn bytes_in(&self, run: &Bindings) -> Option<u64> {
        let sizes = self.shape.evaluate(run)?;
        self.bytes_of(sizes.into_iter().try_fold(1u64, |elements, size| elements.checked_mul(size as u64))?)
    }

    fn bytes_of(&self, elements: u64) -> Option<u64> {
        let bits = Some(self.dtype).filter(|dtype| *dtype != DType::String)?.bits() as u64;
        Some(elements.checked_mul(bits)?.div_ceil(8))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
