//! Artifacts that are larger than their source, and why.

use std::collections::BTreeMap;
use std::fs;

use planish_artifact::backend::Emitted;
use planish_artifact::units::bytes_text;
use planish_ir::weight::{StoredRange, WeightExpr};
use planish_ir::{DType, Weight};

use super::LoweredPart;
use crate::source::SourceModel;

/// Smaller differences are those of the graph beside the weights.
const LEAST: u64 = 1 << 20;

/// Where a tensor of the source is stored in the artifact.
#[derive(Default)]
struct Stored<'a> {
    /// The name of the first weight that it became.
    name: &'a str,
    /// The type and the bytes that it has in the source.
    source: Option<(DType, u64)>,
    /// The parts, and the type and the bytes of each weight.
    places: Vec<(&'a str, DType, u64)>,
}

/// An artifact that is larger than its source.
pub(super) struct Larger {
    /// A sentence on why.
    pub(super) text: String,
    /// Whether weights of a half type became float32, which the sentence names an option for.
    pub(super) has_halves: bool,
}

/// Why the weights of an artifact take more bytes than those of its source, if they do by more than a twentieth.
pub(super) fn larger<'a>(
    model: &SourceModel,
    parts: &[LoweredPart],
    emitted: impl Iterator<Item = &'a Emitted>,
) -> Option<Larger> {
    let source: u64 = model.weight_files().iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
    let written: u64 = emitted.flat_map(|part| &part.files).map(|(_, bytes)| bytes).sum();
    if written < source + LEAST.max(source / 20) {
        return None;
    }
    let mut tensors: BTreeMap<(String, u64), Stored<'_>> = BTreeMap::new();
    for part in parts {
        for (_, value, weight) in part.graph.weights() {
            let Some((tensor, range)) = largest(weight) else { continue };
            let stored = tensors.entry((range.source.name().to_owned(), range.offset)).or_default();
            if stored.places.is_empty() {
                (stored.name, stored.source) = (&value.name, Some((tensor.dtype(), tensor.bytes())));
            }
            stored.places.push((&part.name, weight.dtype(), weight.bytes()));
        }
    }
    let mut reasons: Vec<(u64, String)> = Vec::new();
    let repeated = tensors.values().filter(|stored| stored.places.len() > 1);
    let is_in_one = |stored: &&Stored<'_>| stored.places.iter().all(|(part, ..)| *part == stored.places[0].0);
    let (in_one, in_several): (Vec<_>, Vec<_>) = repeated.partition(is_in_one);
    for (stored, what) in
        [(in_several, "that several parts use are in the file of each"), (in_one, "are stored more than once")]
    {
        let more: u64 = stored.iter().map(|stored| stored.more()).sum();
        let Some(largest) = stored.iter().max_by_key(|stored| stored.more()) else { continue };
        let others = match stored.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let text =
            format!("weights {what}: `{}` ({}){others}, {} more", largest.name, largest.copies(), bytes_text(more));
        reasons.push((more, text));
    }
    let mut wider: BTreeMap<(DType, DType), u64> = BTreeMap::new();
    for stored in tensors.values() {
        let (Some((from, bytes)), Some((_, to, now))) = (stored.source, stored.places.first()) else { continue };
        if *now > bytes {
            *wider.entry((from, *to)).or_default() += now - bytes;
        }
    }
    let is_half = |from: DType| matches!(from, DType::F16 | DType::Bf16);
    let has_halves = wider.keys().any(|(from, to)| is_half(*from) && *to == DType::F32);
    reasons.extend(wider.into_iter().map(|((from, to), more)| {
        let option = match (from, to) {
            (DType::Bf16, DType::F32) => " (--bf16 stores them as they are)",
            (DType::F16, DType::F32) => " (--fp16 stores them as they are)",
            _ => "",
        };
        (more, format!("weights of {from} are stored as {to}, {} more{option}", bytes_text(more)))
    }));
    reasons.sort_by_key(|(more, _)| std::cmp::Reverse(*more));
    let reasons: Vec<String> =
        reasons.into_iter().filter(|(more, _)| *more >= LEAST / 4).map(|(_, reason)| reason).collect();
    let sizes =
        format!("the artifact has {}, and the weight files of its source {}", bytes_text(written), bytes_text(source));
    let text = if reasons.is_empty() { sizes } else { format!("{sizes}: {}", reasons.join("; ")) };
    Some(Larger { text, has_halves })
}

impl Stored<'_> {
    /// How large the copies are: `3 times 1.9 MB`, or where they are of several types `7.7 MB and 1.9 MB`.
    fn copies(&self) -> String {
        let bytes: Vec<u64> = self.places.iter().map(|(.., bytes)| *bytes).collect();
        if bytes.windows(2).all(|pair| pair[0] == pair[1]) {
            return format!("{} times {}", bytes.len(), bytes_text(bytes.first().copied().unwrap_or(0)));
        }
        bytes.into_iter().map(bytes_text).collect::<Vec<_>>().join(" and ")
    }

    /// The bytes of all places but the largest.
    fn more(&self) -> u64 {
        let bytes = || self.places.iter().map(|(.., bytes)| *bytes);
        bytes().sum::<u64>() - bytes().max().unwrap_or(0)
    }
}

/// The largest tensor of a file that a weight is made of.
fn largest(weight: &Weight) -> Option<(&Weight, &StoredRange)> {
    match weight.expr() {
        WeightExpr::Stored(range) => Some((weight, range)),
        expr => expr.children().iter().filter_map(largest).max_by_key(|(tensor, _)| tensor.bytes()),
    }
}
