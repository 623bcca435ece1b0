//! Optimization profiles: the sizes that an engine takes, from ranges of the symbols in the shapes of its inputs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use planish_artifact::files;
use planish_artifact::manifest::PartManifest;
use planish_files::Kind;
use planish_ir::{Bindings, Dim, Symbol};
use planish_runtimes::tensorrt::{InputRange, Profile};
use serde::{Deserialize, Serialize};

use super::symbols::{PartSymbols, Role};

/// The file of an artifact that has its profiles.
pub const PROFILES: &str = "profiles.json";

/// The sizes that a symbol takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRange {
    /// The smallest size.
    pub min: i64,
    /// The size that kernels are chosen for.
    pub opt: i64,
    /// The largest size.
    pub max: i64,
}

impl SizeRange {
    /// One size only.
    #[must_use]
    pub fn fixed(size: i64) -> Self {
        Self { min: size, opt: size, max: size }
    }
}

impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, opt, max } = self;
        if min == max { write!(f, "{min}") } else { write!(f, "{min}:{opt}:{max}") }
    }
}

impl FromStr for SizeRange {
    type Err = String;

    /// `MIN:OPT:MAX`, or one number for all three.
    fn from_str(text: &str) -> Result<Self, String> {
        // TensorRT counts sizes in 32 bits with a sign.
        let size = |text: &str| {
            let size = text.parse::<i32>().ok().filter(|size| *size >= 0);
            size.map(i64::from).ok_or_else(|| format!("`{text}` is no size from 0 to {}", i32::MAX))
        };
        match text.split(':').collect::<Vec<_>>()[..] {
            [one] => size(one).map(Self::fixed),
            [min, opt, max] => Ok(Self { min: size(min)?, opt: size(opt)?, max: size(max)? }),
            _ => Err(format!("`{text}` is no range; the form is MIN:OPT:MAX, e.g. 1:8:32, or one number")),
        }
    }
}

/// The sizes of symbols in one profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SymbolRanges(pub BTreeMap<String, SizeRange>);

impl SymbolRanges {
    /// The size of each symbol, by one of the sizes of its range.
    fn bindings(&self, size: fn(&SizeRange) -> i64) -> Bindings {
        self.0.iter().map(|(symbol, range)| (Symbol::new(symbol), size(range))).collect()
    }
}

impl fmt::Display for SymbolRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.0.iter().map(|(symbol, range)| format!("{symbol}={range}")).collect();
        f.write_str(&ranges.join(","))
    }
}

impl FromStr for SymbolRanges {
    type Err = String;

    /// `SYMBOL=MIN:OPT:MAX,SYMBOL=N`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut ranges = Self::default();
        for item in text.split(',') {
            let form = || format!("`{item}` is no range of a symbol; the form is batch_size=1:8:32 or batch_size=8");
            let (symbol, range) = item.split_once('=').filter(|(symbol, _)| !symbol.is_empty()).ok_or_else(form)?;
            if ranges.0.insert(symbol.to_owned(), range.parse()?).is_some() {
                return Err(format!("`{symbol}` has two ranges in one profile"));
            }
        }
        Ok(ranges)
    }
}

/// Why there are no profiles for a model: what was asked for does not fit it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No input has the symbol.
    #[error("--shapes names `{symbol}`, which is no size of an input of the model; {known}")]
    Unknown {
        /// The symbol.
        symbol: String,
        /// The symbols that there are, in words.
        known: String,
    },
    /// A symbol has no range.
    #[error("`{symbol}` has no range, and {inputs} of {part} need one: add {symbol}=MIN:OPT:MAX to --shapes; {known}")]
    Missing {
        /// The symbol.
        symbol: String,
        /// The inputs that it stands in.
        inputs: String,
        /// The part that has the inputs.
        part: String,
        /// The symbols that there are, in words.
        known: String,
    },
    /// The range is not one that the symbol can have.
    #[error("--shapes {symbol}={range} of {inputs}: {reason}")]
    Range {
        /// The symbol.
        symbol: String,
        /// Its range.
        range: SizeRange,
        /// The inputs that it stands in.
        inputs: String,
        /// Why.
        reason: String,
    },
    /// A cache and the tokens that follow it are longer than the model takes.
    #[error(
        "--shapes {past}={past_range},{new}={new_range}: a cache and the tokens after it may be {tokens} tokens long, and the \
         model takes {limit} at most; each --shapes is a profile of its own"
    )]
    Sum {
        /// The symbol of the cache.
        past: String,
        /// Its range.
        past_range: SizeRange,
        /// The symbol of the tokens that follow.
        new: String,
        /// Its range.
        new_range: SizeRange,
        /// The sum of the largest sizes.
        tokens: i64,
        /// The longest sequence that the model takes.
        limit: i64,
    },
    /// The sizes of an input do not follow from those of symbols.
    #[error("the input `{input}` of {part} has the shape {shape}, of which {ranges} make no range of sizes")]
    Shape {
        /// The input.
        input: String,
        /// Its part.
        part: String,
        /// Its shape.
        shape: String,
        /// The ranges.
        ranges: String,
    },
}

/// The profiles of all parts of a model: what `profiles.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profiles {
    /// The parts, in their order.
    pub parts: Vec<PartProfiles>,
}

/// The profiles of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartProfiles {
    /// The name of the part.
    pub name: String,
    /// The profiles, in the order in which the engine has them. A part with inputs of known sizes only has none.
    pub profiles: Vec<PartProfile>,
}

/// A profile of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartProfile {
    /// The sizes of the symbols.
    pub symbols: SymbolRanges,
    /// The sizes of the inputs that have symbols. TensorRT takes none for the others.
    pub inputs: Vec<InputSizes>,
}

/// The sizes of an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSizes {
    /// The name of the input.
    pub name: String,
    /// The smallest shape.
    pub min: Vec<i64>,
    /// The shape that kernels are chosen for.
    pub opt: Vec<i64>,
    /// The largest shape.
    pub max: Vec<i64>,
}

impl Profiles {
    /// The profiles of a model for each of the ranges that were asked for; the usual ones where nothing was. `limit` is the
    /// longest sequence that the model takes.
    ///
    /// # Errors
    /// When a range is missing, or not one that the model takes.
    pub fn of(parts: &[PartManifest], limit: Option<usize>, asked: &[SymbolRanges]) -> Result<Self, ProfileError> {
        let symbols: Vec<PartSymbols<'_>> = parts.iter().map(PartSymbols::of).collect();
        let limit = limit.and_then(|limit| i64::try_from(limit).ok());
        for ranges in asked {
            check(&symbols, ranges, limit)?;
        }
        let one = |part: &PartSymbols<'_>| -> Result<PartProfiles, ProfileError> {
            let wanted = match asked {
                [] => part.defaults(&symbols, limit)?,
                _ => asked.iter().map(|ranges| part.take(ranges, &symbols)).collect::<Result<_, _>>()?,
            };
            let mut profiles: Vec<PartProfile> = Vec::new();
            // Profiles that differ in symbols of other parts only are one.
            for symbols in wanted.into_iter().filter(|symbols| !symbols.0.is_empty()) {
                if !profiles.iter().any(|profile| profile.symbols == symbols) {
                    profiles.push(PartProfile { inputs: inputs(part.part, &symbols)?, symbols });
                }
            }
            Ok(PartProfiles { name: part.part.name.clone(), profiles })
        };
        Ok(Self { parts: symbols.iter().map(one).collect::<Result<_, _>>()? })
    }

    /// The profiles of a part.
    #[must_use]
    pub fn part(&self, name: &str) -> &[PartProfile] {
        self.parts.iter().find(|part| part.name == name).map_or(&[], |part| &part.profiles)
    }

    /// Whether a folder has profiles.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        folder.join(PROFILES).is_file()
    }

    /// Reads the profiles of an artifact.
    ///
    /// # Errors
    /// When it has none, or the file is not what [`Self::write`] writes.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(PROFILES);
        let text = planish_files::read_text(&path, &Kind::ENGINE_RECORD).context("give the sizes with --shapes")?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} does not hold profiles; give the sizes with --shapes", path.display()))
    }

    /// Checks that profiles which were read from a file are those of a model: the ranges are ones that it takes, and the
    /// shapes of inputs follow from them.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, parts: &[PartManifest], limit: Option<usize>) -> Result<(), String> {
        let limit = limit.and_then(|limit| i64::try_from(limit).ok());
        if let Some(other) = self.parts.iter().find(|own| !parts.iter().any(|part| part.name == own.name)) {
            return Err(format!("it has profiles of `{}`, and the artifact has no such part", other.name));
        }
        for part in parts {
            let symbols = [PartSymbols::of(part)];
            let profiles = self.part(&part.name);
            if profiles.is_empty() && symbols[0].has_any() {
                return Err(format!("it has no profile of `{}`", part.name));
            }
            for (index, profile) in profiles.iter().enumerate() {
                let at = |reason: String| format!("profile {index} of `{}`: {reason}", part.name);
                check(&symbols, &profile.symbols, limit).map_err(|error| at(error.to_string()))?;
                symbols[0].take(&profile.symbols, &symbols).map_err(|error| at(error.to_string()))?;
                let expected = inputs(part, &profile.symbols).map_err(|error| at(error.to_string()))?;
                if let Some(input) = expected.iter().find(|input| !profile.inputs.contains(input)) {
                    let InputSizes { name, min, opt, max } = input;
                    let shapes = format!("min {min:?}, opt {opt:?}, max {max:?}");
                    return Err(at(format!("the shapes of `{name}` that follow from the symbols are {shapes}")));
                }
                if profile.inputs.len() != expected.len() {
                    return Err(at("it names an input that has no symbol, or one twice".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Writes the file of an artifact.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        files::write_within(&folder.join(PROFILES), (serde_json::to_string_pretty(self)? + "\n").as_bytes())
    }
}

impl PartProfile {
    /// As the builder takes it.
    #[must_use]
    pub fn for_builder(&self) -> Profile {
        let range = |input: &InputSizes| {
            let InputSizes { name, min, opt, max } = input.clone();
            InputRange { name, min, opt, max }
        };
        Profile { inputs: self.inputs.iter().map(range).collect() }
    }
}

/// Checks that a model has the symbols, and that they may have these sizes.
fn check(parts: &[PartSymbols<'_>], ranges: &SymbolRanges, limit: Option<i64>) -> Result<(), ProfileError> {
    for (symbol, range) in &ranges.0 {
        let roles: Vec<Role> = parts.iter().filter_map(|part| part.role(symbol)).collect();
        if roles.is_empty() {
            return Err(ProfileError::Unknown { symbol: symbol.clone(), known: super::symbols::known(parts) });
        }
        let is_past = roles.iter().all(|role| *role == Role::Past);
        let reason = if range.min > range.opt || range.opt > range.max {
            "the sizes do not rise from MIN over OPT to MAX".to_owned()
        } else if range.min == 0 && !is_past {
            "only the length of a cache may be 0; begin with 1".to_owned()
        } else if let Some(limit) = limit
            .filter(|limit| roles.iter().all(|role| !matches!(role, Role::Batch | Role::Sound)) && range.max > *limit)
        {
            format!("the model takes {limit} tokens at most")
        } else {
            continue;
        };
        let inputs = super::symbols::inputs(parts, symbol);
        return Err(ProfileError::Range { symbol: symbol.clone(), range: *range, inputs, reason });
    }
    limit.map_or(Ok(()), |limit| parts.iter().try_for_each(|part| check_sums(part, ranges, limit)))
}

/// Checks that a cache and the tokens that follow it are together no longer than a part takes.
fn check_sums(part: &PartSymbols<'_>, ranges: &SymbolRanges, limit: i64) -> Result<(), ProfileError> {
    let of = |role: Role| ranges.0.iter().filter(move |(symbol, _)| part.role(symbol) == Some(role));
    for (past, past_range) in of(Role::Past) {
        for (new, new_range) in of(Role::New) {
            let tokens = past_range.max + new_range.max;
            if tokens > limit {
                let (past, new) = (past.clone(), new.clone());
                let (past_range, new_range) = (*past_range, *new_range);
                return Err(ProfileError::Sum { past, past_range, new, new_range, tokens, limit });
            }
        }
    }
    Ok(())
}

/// The sizes of the inputs of a part that have symbols.
fn inputs(part: &PartManifest, ranges: &SymbolRanges) -> Result<Vec<InputSizes>, ProfileError> {
    let bindings =
        [ranges.bindings(|range| range.min), ranges.bindings(|range| range.opt), ranges.bindings(|range| range.max)];
    let open = part.inputs.iter().filter(|input| input.value.dims().iter().any(|dim| dim.as_constant().is_none()));
    let one = |input: &planish_artifact::manifest::Input| {
        let dims = input.value.dims();
        let shape = |bindings| dims.iter().map(|dim: &Dim| dim.evaluate(bindings)).collect::<Option<Vec<i64>>>();
        let [min, opt, max] = bindings.each_ref().map(shape);
        let rising = |(min, opt, max): &(Vec<i64>, Vec<i64>, Vec<i64>)| {
            let mut sizes = min.iter().zip(opt).zip(max);
            sizes.all(|((min, opt), max)| 0 <= *min && min <= opt && opt <= max)
        };
        let sizes = min.zip(opt).zip(max).map(|((min, opt), max)| (min, opt, max)).filter(rising);
        let (min, opt, max) = sizes.ok_or_else(|| ProfileError::Shape {
            input: input.value.name.clone(),
            part: part.name.clone(),
            shape: input.value.ty.to_string(),
            ranges: ranges.to_string(),
        })?;
        Ok(InputSizes { name: input.value.name.clone(), min, opt, max })
    };
    open.map(one).collect()
}
