//! Arithmetic on indices.

use planish_ir::{Dim, Shape, Symbol};

/// The indices that run over a shape.
pub(super) struct Indices {
    /// The shape.
    pub(super) extents: Shape,
}

impl Indices {
    /// The index along a dimension. No dimension of a graph has such a name.
    pub(super) fn along(axis: usize) -> Dim {
        Dim::symbol(&format!("\u{0}{axis}"))
    }

    /// Whether a number is 0 or more whatever the indices and sizes are.
    pub(super) fn is_at_least_zero(&self, number: &Dim) -> bool {
        let mut least = number.clone();
        for (axis, extent) in self.extents.iter().enumerate() {
            let index = Self::along(axis);
            let symbol = index.as_symbol();
            let coefficient =
                number.summands().find(|(_, s)| s.len() == 1 && s.first() == symbol).map_or(0, |(c, _)| c);
            // The smallest value is at the last index where the index is subtracted.
            let last = || extent.checked_sub(&Dim::constant(1))?.checked_sub(&index)?.checked_mul(&coefficient.into());
            match (coefficient < 0).then(last) {
                Some(Some(change)) => least = least.checked_add(&change).unwrap_or_else(|| Dim::constant(-1)),
                Some(None) => return false,
                None => {}
            }
        }
        least.summands().all(|(coefficient, _)| coefficient >= 0)
    }

    /// The index under another shape of as many elements.
    pub(super) fn under(&self, from: &Shape, index: &[Dim], to: &Shape) -> Option<Vec<Dim>> {
        let one = Dim::constant(1);
        let mut linear = Dim::constant(0);
        for (index, size) in index.iter().zip(from.iter()) {
            linear = linear.checked_mul(size)?.checked_add(index)?;
        }
        // Where only dimensions of 1 differ, every index stays.
        let wide = |shape: &Shape| shape.iter().filter(|d| **d != one).cloned().collect::<Vec<Dim>>();
        if wide(from) == wide(to) {
            let mut kept =
                index.iter().zip(from.iter()).filter(|(_, size)| **size != one).map(|(index, _)| index.clone());
            return to.iter().map(|size| if *size == one { Some(Dim::constant(0)) } else { kept.next() }).collect();
        }
        let mut of = vec![Dim::constant(0); to.rank()];
        for (at, size) in to.iter().enumerate().skip(1).rev() {
            let (quotient, rest) = self.divided(&linear, size)?;
            (linear, of[at]) = (quotient, rest);
        }
        *of.first_mut()? = linear;
        Some(of)
    }

    /// Quotient and remainder, where the remainder is known to be one.
    fn divided(&self, number: &Dim, by: &Dim) -> Option<(Dim, Dim)> {
        let lead = |dim: &Dim| {
            let widest = dim.summands().max_by_key(|(_, symbols)| symbols.len())?;
            monomial(widest.0, widest.1)
        };
        let divisor = lead(by)?;
        let (mut quotient, mut rest) = (Dim::constant(0), number.clone());
        // Each round takes one summand away for good.
        for _ in 0..Dim::MAX_PRODUCTS {
            let step = rest
                .summands()
                .find_map(|(c, s)| monomial(c, s)?.exact_div(&divisor).filter(|d| *d != Dim::constant(0)));
            let Some(step) = step else { break };
            quotient = quotient.checked_add(&step)?;
            rest = rest.checked_sub(&step.checked_mul(by)?)?;
        }
        let room = by.checked_sub(&rest)?.checked_sub(&Dim::constant(1))?;
        (self.is_at_least_zero(&rest) && self.is_at_least_zero(&room)).then_some((quotient, rest))
    }
}

fn monomial(coefficient: i64, symbols: &[Symbol]) -> Option<Dim> {
    symbols.iter().try_fold(Dim::constant(coefficient), |product, symbol| product.checked_mul(&Dim::symbol(symbol)))
}
