//! Where the elements of a tensor lie.

/// Where the elements of a tensor lie, over all runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least element.
    pub min: f64,
    /// The largest element.
    pub max: f64,
}

impl Range {
    /// That of no elements: what [`merge`](Self::merge) leaves other ranges as they are by.
    pub const EMPTY: Self = Self { min: f64::INFINITY, max: f64::NEG_INFINITY };

    /// Whether there was no element.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.min > self.max
    }

    /// The range of the elements of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The largest absolute value of an element; 0 where there is none.
    #[must_use]
    pub fn magnitude(self) -> f64 {
        if self.is_empty() { 0.0 } else { self.min.abs().max(self.max.abs()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_the_elements_of_all_runs() {
        let (a, b) = (Range { min: -3.0, max: 1.0 }, Range { min: 0.5, max: 2.0 });
        assert_eq!(a.merge(b), Range { min: -3.0, max: 2.0 });
        assert_eq!((a.magnitude(), b.magnitude(), Range::EMPTY.magnitude()), (3.0, 2.0, 0.0));
        assert_eq!((Range::EMPTY.merge(b), b.merge(Range::EMPTY)), (b, b));
        assert!(Range::EMPTY.is_empty() && !a.is_empty());
        assert_eq!(Range { min: f64::NEG_INFINITY, max: 0.0 }.magnitude(), f64::INFINITY);
    }
}
