//! How much of a model's weights are codes, and what is left and why.

use serde::{Deserialize, Serialize};

use crate::units::count_text;

/// How many elements of the matrices of a part are codes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// The elements that were quantized.
    pub quantized: u64,
    /// The elements that were codes in the source, and stay as they are.
    pub kept: u64,
    /// How many weights these are.
    pub kept_weights: usize,
    /// What stays in floating point, the most elements first.
    pub left: Vec<Left>,
}

/// Weights that stay in floating point for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The operator that takes them.
    pub operator: String,
    /// How many they are.
    pub weights: usize,
    /// Their elements.
    pub elements: u64,
    /// Why.
    pub reason: String,
}

/// How much of a model is codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Nothing was quantized.
    Nothing,
    /// Fewer than half of the elements of its matrices are codes.
    Part,
    /// Half of them or more.
    Most,
}

impl Coverage {
    /// That of several parts.
    #[must_use]
    pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.quantized += part.quantized;
            all.kept += part.kept;
            all.kept_weights += part.kept_weights;
            part.left.iter().for_each(|left| all.add(left.clone()));
        }
        all.sort();
        all
    }

    /// Adds weights that are left.
    pub fn add(&mut self, left: Left) {
        let same = |known: &&mut Left| known.operator == left.operator && known.reason == left.reason;
        match self.left.iter_mut().find(same) {
            Some(known) => {
                known.weights += left.weights;
                known.elements += left.elements;
            }
            None => self.left.push(left),
        }
    }

    /// Puts what was left out in order: the most elements first.
    pub fn sort(&mut self) {
        self.left.sort_by(|a, b| b.elements.cmp(&a.elements).then_with(|| a.operator.cmp(&b.operator)));
    }

    fn floats(&self) -> u64 {
        self.left.iter().map(|left| left.elements).sum()
    }

    /// The share of elements that are codes; 1 where there is no matrix.
    #[must_use]
    pub fn share(&self) -> f64 {
        let codes = self.quantized + self.kept;
        let all = codes + self.floats();
        if all == 0 { 1.0 } else { codes as f64 / all as f64 }
    }

    /// How much of the model is codes.
    #[must_use]
    pub fn extent(&self) -> Extent {
        match self.quantized {
            0 => Extent::Nothing,
            _ if self.share() < 0.5 => Extent::Part,
            _ => Extent::Most,
        }
    }

    /// What is left, where it is more than one element of a hundred, in one sentence.
    #[must_use]
    pub fn reasons(&self) -> Option<String> {
        let all = self.quantized + self.kept + self.floats();
        let named = self.left.iter().filter(|left| left.elements * 100 > all).take(MOST);
        let named: Vec<String> = named.map(Left::to_string).collect();
        (!named.is_empty()).then(|| named.join("; "))
    }
}

/// How many groups of weights are named.
const MOST: usize = 4;

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { operator, weights, elements, reason } = self;
        let weights = if *weights == 1 { "1 weight".to_owned() } else { format!("{weights} weights") };
        write!(f, "{weights} of {operator} ({} elements): {reason}", count_text(*elements))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(operator: &str, elements: u64) -> Left {
        Left { operator: operator.to_owned(), weights: 1, elements, reason: "it is kept".to_owned() }
    }

    #[test]
    fn the_extent_follows_the_elements() {
        let of = |quantized, kept, floats: &[u64]| {
            let left = floats.iter().map(|elements| left("Conv", *elements)).collect();
            Coverage { quantized, kept, kept_weights: 0, left }.extent()
        };
        assert_eq!(of(0, 0, &[100]), Extent::Nothing);
        assert_eq!(of(0, 100, &[]), Extent::Nothing);
        assert_eq!(of(0, 0, &[]), Extent::Nothing);
        assert_eq!(of(49, 0, &[51]), Extent::Part);
        assert_eq!(of(50, 0, &[50]), Extent::Most);
        assert_eq!(of(10, 40, &[25, 25]), Extent::Most);
    }

    #[test]
    fn groups_of_parts_are_joined_and_small_ones_are_not_named() {
        let part = |elements| Coverage {
            quantized: 1000,
            left: vec![left("Conv", elements), left("add", 5)],
            ..Coverage::default()
        };
        let all = Coverage::of_all(&[part(700), part(800)]);
        assert_eq!((all.quantized, all.left[0].weights, all.left[0].elements, all.left.len()), (2000, 2, 1500, 2));
        assert_eq!(all.reasons().unwrap(), "2 weights of Conv (1.5k elements): it is kept");
        assert_eq!(Coverage { quantized: 1, ..Coverage::default() }.reasons(), None);
    }
}
