//! Which tensor of the source is not finite.

use std::collections::BTreeMap;
use std::error::Error;

use anyhow::{Result, anyhow};
use planish_ir::weight::{NotFinite, WeightError};
use planish_ir::{Graph, Weight};
use planish_models::Loaded;
use planish_passes::PassError;
use planish_passes::quantize::not_finite_weights;

use super::{CompileOptions, Observer};

/// The weights that stay floats because they are not finite, by their names, and why; none where that is an error.
pub(super) fn kept(
    graph: &Graph,
    options: &CompileOptions,
    observer: &dyn Observer,
) -> Result<BTreeMap<String, String>> {
    let quantizes = options.quantize.is_some() || options.quantize_weights.is_some();
    if !quantizes || !options.passes.allow_non_finite {
        return Ok(BTreeMap::new());
    }
    let kept = not_finite_weights(graph)?;
    for (weight, why) in &kept {
        observer.warning(&format!("`{weight}` is not quantized: {why}"));
    }
    Ok(kept)
}

/// The error that a number is not finite, with the tensor of the source that has it; another error as it is. A weight that is
/// quantized may be made of several tensors.
pub(super) fn named(error: anyhow::Error, source: &Loaded) -> anyhow::Error {
    if !error.chain().any(|cause| found(cause).is_some()) {
        return error;
    }
    const REMEDY: &str = "quantized weights are finite numbers: check the source, or keep this weight a float with --recipe allow-non-finite=true";
    let tensor = first(source, |weight| weight.shape().len() >= 2);
    let of_pass = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(PassError::Weight { name, origin, source }) => Some(format!("`{name}` ({origin}): {source}")),
        _ => None,
    });
    match tensor.or(of_pass) {
        Some(tensor) => anyhow!("the weight {tensor}; {REMEDY}"),
        // The numbers are finite, and their range is not.
        None => error.context(REMEDY),
    }
}

/// The first weight of a model that is not finite, and why.
pub fn first_not_finite(source: &Loaded) -> Option<String> {
    first(source, |_| true)
}

/// The same among some weights.
fn first(source: &Loaded, is_searched: impl Fn(&Weight) -> bool) -> Option<String> {
    source.parts.iter().flat_map(|part| part.graph.weights()).find_map(|(_, value, weight)| {
        let why = not_finite(weight, is_searched(weight))?;
        Some(format!("`{}` ({}): {why}", value.name, value.origin))
    })
}

fn found<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a NotFinite> {
    match cause.downcast_ref::<WeightError>() {
        Some(WeightError::NotFinite(found)) => Some(found),
        _ => None,
    }
}

/// The first number of a tensor, or of the scales of its codes, that is not finite. Numbers that are no scales are searched where
/// that is said.
fn not_finite(weight: &Weight, is_searched: bool) -> Option<NotFinite> {
    let checked = match weight.check_scales() {
        Ok(()) if is_searched && weight.dtype().is_float() && weight.as_dequantized().is_none() => {
            weight.check_finite()
        }
        checked => checked,
    };
    match checked {
        Err(WeightError::NotFinite(found)) => Some(found),
        _ => None,
    }
}
