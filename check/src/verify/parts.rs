//! Comparing models of several parts, where outputs of one part are inputs of another: encoder-decoders, and models that see.

use anyhow::Result;
use planish_artifact::chain::Tensors;
use planish_artifact::named;
use planish_artifact::verification::{CaseReport, ReferenceKind, Report, Skipped, Tolerances};
use planish_data::inputs::{has_cache, interface_of, seeded_inputs};
use planish_ir::{Interface, PartRole};
use planish_runtimes::RuntimeError;

use super::cases::Case;
use super::{Pair, held, per_token};

/// Batch, tokens of the first part, tokens of each other part, and whether there is padding.
type Sizes = (usize, usize, [usize; 2], bool);

const SIZES: &[Sizes] = &[(1, 1, [1, 1], false), (2, 7, [5, 1], true), (3, 16, [2, 3], true), (1, 64, [33, 1], false)];

/// Runs each part on several shapes and compares. Both sides take the same inputs: the parts after
/// the first what the reference gave before, so that an error is that of its part.
///
/// # Errors
/// When inputs cannot be made, or a part fails to run on the reference.
pub fn verify_parts(pairs: &mut [Pair], longest: Option<usize>, seed: u64, tolerances: Tolerances) -> Result<Report> {
    let longest = longest.unwrap_or(usize::MAX);
    let parts = pairs.iter().map(|pair| (pair.name.clone(), pair.interface.clone()));
    let interface = Interface { parts: parts.collect() };
    // What reads vectors reads as many as were made of ids.
    let sees = interface.parts.iter().any(|(_, part)| part.role == PartRole::Embedder);
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    for &(batch, tokens, [first, next], padded) in SIZES {
        // What continues from a cache has the tokens of both decoders.
        let (tokens, next) = (tokens.min(longest), next.min(longest.saturating_sub(1)).max(1));
        let first = first.min(longest.saturating_sub(next)).max(1);
        let mut given = Tensors::new(interface.clone());
        for (index, pair) in pairs.iter_mut().enumerate() {
            let sequence = if sees { tokens } else { [tokens, first, next].get(index).copied().unwrap_or(next) };
            let seed = seed.wrapping_add(index as u64);
            let mut inputs = seeded_inputs(&pair.specs, batch, sequence, seed, padded && (sees || index == 0))?;
            for (name, tensor) in &mut inputs {
                if let Some(earlier) = given.input(&pair.name, name) {
                    *tensor = earlier.clone();
                }
            }
            let reference = pair.reference.session();
            let expected = reference.run(&named(reference, &inputs))?;
            let per_token = per_token(reference, &pair.interface);
            let actual = pair.candidate.run(&named(pair.candidate.as_ref(), &inputs));
            let label = format!("{}, {batch} x {sequence}{}", pair.name, if padded { ", padded" } else { "" });
            if let Err(RuntimeError::Shapes { reason, .. }) = &actual {
                skipped.push(Skipped { label, reason: reason.clone(), instead: None });
                given.take_outputs(&pair.name, &expected);
                continue;
            }
            let outputs = held(&expected, actual, &inputs, &per_token, (&pair.interface, &pair.logits), tolerances);
            cases.push(CaseReport { label, outputs });
            if let Some(merged) = &pair.merged {
                let label = format!("{}, {batch} x {sequence}, in the graph of both decoders", pair.name);
                let of = (&pair.interface, &pair.logits);
                let outputs = held(&expected, merged.run(&inputs), &inputs, &per_token, of, tolerances);
                cases.push(CaseReport { label, outputs });
            }
            if index == 0 {
                given.take_inputs(&pair.name, &inputs);
            }
            given.take_outputs(&pair.name, &expected);
            if sees && sequence > 1 && has_cache(&pair.specs) {
                let label = format!("{}, {batch} x {sequence}, {} of them cached", pair.name, sequence / 2);
                let of = interface_of(&pair.specs);
                let case = Case { label, inputs, before: Some(sequence / 2), of };
                let [rest, expected] = case.run(pair.reference.session())?;
                let actual = case.run(pair.candidate.as_mut()).map(|[_, outputs]| outputs);
                let outputs = held(&expected, actual, &rest, &per_token, (&pair.interface, &pair.logits), tolerances);
                cases.push(CaseReport { label: case.label, outputs });
            }
        }
    }
    Ok(Report { reference: ReferenceKind::Interpreter, tolerances, cases, skipped })
}
