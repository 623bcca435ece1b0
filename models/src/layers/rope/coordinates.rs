//! By which coordinates pairs turn in models that see.

use serde_json::Value;

use super::parameters::Parameters;
use crate::ModelError;

/// By which of three coordinates pairs turn: `mrope_section` has how many pairs turn by each, and this is it where the configuration
/// does not say.
#[derive(Clone, Copy)]
pub(crate) enum Coordinates {
    /// The first ones by the first coordinate, and so on.
    InTurn([usize; 3]),
    /// Every third pair by the second coordinate, and every third by the third, as far as these go.
    Interleaved([usize; 3]),
}

pub(super) const SECTIONS: &str = "mrope_section";

impl Coordinates {
    /// The coordinate of each pair.
    pub(super) fn of_pairs(self, parameters: &Parameters<'_>, pairs: usize) -> Result<Vec<usize>, ModelError> {
        let (Self::InTurn(usual) | Self::Interleaved(usual)) = self;
        let sections = match parameters.get(SECTIONS) {
            None => usual.to_vec(),
            Some(value) => {
                let numbers = value.as_array().map(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
                let numbers = numbers.flatten().filter(|numbers| numbers.len() >= 3);
                let numbers = numbers.and_then(|n| n.into_iter().map(|n| usize::try_from(n).ok()).collect());
                numbers.ok_or_else(|| parameters.unexpected(SECTIONS, value, "three numbers of pairs"))?
            }
        };
        match self {
            Self::InTurn(_) => {
                let all = sections.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
                if all != Some(pairs) {
                    return Err(parameters.config.error(format!(
                        "`{}.{SECTIONS}` is {sections:?}, and the {pairs} pairs of a head have to be its sum",
                        parameters.key
                    )));
                }
                let of_section = |(at, count): (usize, &usize)| std::iter::repeat_n(at % 3, *count);
                Ok(sections.iter().enumerate().flat_map(of_section).collect())
            }
            Self::Interleaved(_) => Ok((0..pairs)
                .map(|pair| if pair % 3 > 0 && pair / 3 < sections[pair % 3] { pair % 3 } else { 0 })
                .collect()),
        }
    }
}
