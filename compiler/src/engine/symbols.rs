//! The symbols in the shapes of inputs: what each stands for, and which sizes it has where nobody says.

use std::collections::{BTreeMap, BTreeSet};

use planish_artifact::manifest::{Input, PartManifest};
use planish_ir::SymbolRole;

use super::profiles::{ProfileError, SizeRange, SymbolRanges};

/// How many inputs a message names.
const LISTED: usize = 3;

/// The rows of a batch that are usual, and the most of a model without and with a cache.
const BATCH: i64 = 1;
const LARGEST_BATCH: i64 = 32;
const LARGEST_BATCH_WITH_CACHE: i64 = 4;

/// The length of a sequence that is usual, and the largest of a model without and with a cache.
const LENGTH: i64 = 128;
const LARGEST_LENGTH: i64 = 512;
const LARGEST_LENGTH_WITH_CACHE: i64 = 1024;

/// The texts of a row, of which one is chosen: the usual number, and the most.
const CHOICES: i64 = 4;
const LARGEST_CHOICES: i64 = 8;

/// What a symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The rows of a batch.
    Batch,
    /// The length of the cache of tokens that came before.
    Past,
    /// That length and the tokens that follow, where no input has the length alone.
    All,
    /// The tokens that follow a cache.
    New,
    /// The length of a sequence of tokens.
    Length,
    /// The texts of a row, of which one is chosen.
    Choices,
    /// The samples or frames of a recording.
    Sound,
    /// Some other size.
    Other,
}

/// The symbols of the inputs of a part.
pub(super) struct PartSymbols<'a> {
    pub(super) part: &'a PartManifest,
    roles: BTreeMap<String, Role>,
}

impl<'a> PartSymbols<'a> {
    pub(super) fn of(part: &'a PartManifest) -> Self {
        let all: BTreeSet<&str> = part.inputs.iter().flat_map(names).collect();
        let has_past = part.symbols.values().any(|role| matches!(role, SymbolRole::Past | SymbolRole::PastAndTokens));
        let tokens = part.inputs.iter().find(|input| input.role.is_token_ids());
        let role = |symbol: &str| match part.symbols.get(symbol).copied().unwrap_or_default() {
            SymbolRole::Rows => Role::Batch,
            SymbolRole::Past => Role::Past,
            SymbolRole::PastAndTokens => Role::All,
            SymbolRole::Tokens | SymbolRole::EncoderTokens => match tokens {
                Some(tokens) if has_past && names(tokens).any(|name| name == symbol) => Role::New,
                Some(_) => Role::Length,
                None => Role::Other,
            },
            SymbolRole::Choices => Role::Choices,
            SymbolRole::Prompts
            | SymbolRole::Points
            | SymbolRole::Channels
            | SymbolRole::Height
            | SymbolRole::Width
            | SymbolRole::Other => Role::Other,
            SymbolRole::Samples | SymbolRole::Frames => Role::Sound,
        };
        let roles = all.iter().map(|symbol| ((*symbol).to_owned(), role(symbol))).collect();
        Self { part, roles }
    }

    /// What a symbol stands for, if the part has it.
    pub(super) fn role(&self, symbol: &str) -> Option<Role> {
        self.roles.get(symbol).copied()
    }

    /// Whether the part has a symbol.
    pub(super) fn has_any(&self) -> bool {
        !self.roles.is_empty()
    }

    fn has_past(&self) -> bool {
        self.roles.values().any(|role| matches!(role, Role::Past | Role::All))
    }

    /// The ranges of the symbols that the part has.
    pub(super) fn take(&self, ranges: &SymbolRanges, all: &[Self]) -> Result<SymbolRanges, ProfileError> {
        let range = |symbol: &String| {
            let range = ranges.0.get(symbol).ok_or_else(|| self.missing(symbol, all))?;
            Ok((symbol.clone(), *range))
        };
        Ok(SymbolRanges(self.roles.keys().map(range).collect::<Result<_, _>>()?))
    }

    /// The ranges where nobody says. A part with a cache has a profile for prompts, unless another part reads them, and one
    /// for the token that follows.
    pub(super) fn defaults(&self, all: &[Self], limit: Option<i64>) -> Result<Vec<SymbolRanges>, ProfileError> {
        let cached = all.iter().any(Self::has_past);
        let batch =
            SizeRange { min: 1, opt: BATCH, max: if cached { LARGEST_BATCH_WITH_CACHE } else { LARGEST_BATCH } };
        let largest = if cached { LARGEST_LENGTH_WITH_CACHE } else { LARGEST_LENGTH };
        let largest = limit.map_or(largest, |limit| limit.clamp(1, largest));
        let choices = SizeRange { min: 1, opt: CHOICES, max: LARGEST_CHOICES };
        let length = SizeRange { min: 1, opt: LENGTH.min(largest), max: largest };
        let past = SizeRange { min: 1, opt: (largest / 2).max(1), max: (largest - 1).max(1) };
        let profile = |past: SizeRange, new: SizeRange| -> Result<SymbolRanges, ProfileError> {
            let range = |(symbol, role): (&String, &Role)| {
                let range = match role {
                    Role::Batch => batch,
                    Role::Past => past,
                    Role::All => {
                        SizeRange { min: past.min + new.min, opt: past.opt + new.opt, max: past.max + new.max }
                    }
                    Role::New => new,
                    Role::Length => length,
                    Role::Choices => choices,
                    Role::Sound | Role::Other => return Err(self.missing(symbol, all)),
                };
                Ok((symbol.clone(), range))
            };
            Ok(SymbolRanges(self.roles.iter().map(range).collect::<Result<_, _>>()?))
        };
        let step = profile(past, SizeRange::fixed(1));
        let prompt = profile(SizeRange::fixed(0), length);
        match (self.has_past(), all.len()) {
            (false, _) => Ok(vec![prompt?]),
            (true, 1) => Ok(vec![prompt?, step?]),
            (true, _) => Ok(vec![step?]),
        }
    }

    fn missing(&self, symbol: &str, all: &[Self]) -> ProfileError {
        ProfileError::Missing {
            symbol: symbol.to_owned(),
            inputs: inputs(std::slice::from_ref(self), symbol),
            part: self.part.name.clone(),
            known: known(all),
        }
    }
}

/// The rows of the largest batch of a model, where nobody says.
pub(crate) fn usual_batch(parts: &[PartManifest]) -> i64 {
    let cached = parts.iter().any(|part| PartSymbols::of(part).has_past());
    if cached { LARGEST_BATCH_WITH_CACHE } else { LARGEST_BATCH }
}

/// The symbols in the shape of an input.
fn names(input: &Input) -> impl Iterator<Item = &str> {
    input.value.dims().iter().flat_map(|dim| dim.symbols()).map(|symbol| &**symbol)
}

/// The inputs that a symbol stands in, in words.
pub(super) fn inputs(parts: &[PartSymbols<'_>], symbol: &str) -> String {
    let mut inputs: Vec<&str> = Vec::new();
    for input in parts.iter().flat_map(|part| &part.part.inputs) {
        if names(input).any(|name| name == symbol) && !inputs.contains(&input.value.name.as_str()) {
            inputs.push(&input.value.name);
        }
    }
    let more = inputs.len().saturating_sub(LISTED);
    inputs.truncate(LISTED);
    if more > 0 { format!("{} and {more} more", inputs.join(", ")) } else { inputs.join(", ") }
}

/// The symbols that a model has, in words.
pub(super) fn known(parts: &[PartSymbols<'_>]) -> String {
    let symbols: BTreeSet<&str> = parts.iter().flat_map(|part| part.roles.keys().map(String::as_str)).collect();
    let one = |symbol: &&str| format!("`{symbol}` (of {})", inputs(parts, symbol));
    match symbols.is_empty() {
        true => "all sizes of its inputs are known".to_owned(),
        false => format!("the model has {}", symbols.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}
