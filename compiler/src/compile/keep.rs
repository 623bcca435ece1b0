//! Whether exceptions from the precision of a model are of use.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use planish_models::Loaded;
use planish_passes::quantize::PlannedWeight;
use planish_passes::{Exception, Exceptions, KeptType, Named, names};

use super::{CompileOptions, LoweredPart, Observer};

/// How many names like a pattern an error has.
const NEAR: usize = 3;

/// Each exception has to name something in a part. Those of the head and the table that change nothing are warned of.
///
/// # Errors
/// When one names nothing.
pub(super) fn check(
    options: &CompileOptions,
    source: &Loaded,
    parts: &[LoweredPart],
    observer: &dyn Observer,
) -> Result<()> {
    let Some(exceptions) = exceptions(options) else { return Ok(()) };
    // A pipeline that stops early does not say what has which name for half precision.
    if options.passes.precision.is_some() && parts.iter().all(|part| part.precision.is_none()) {
        return Ok(());
    }
    for (at, exception) in exceptions.0.iter().enumerate() {
        let is_matched = |part: &LoweredPart| {
            let half = part.precision.as_ref().is_some_and(|report| report.matched.get(at) == Some(&true));
            half || part.matched.get(at) == Some(&true)
        };
        if !parts.iter().any(is_matched) {
            bail!("{}", unmatched(&exception.of, source));
        }
        if is_idle(options, exception, parts) {
            observer.warning(&format!(
                "--keep {} changed nothing; --explain quantization prints what became of each weight, and why",
                text(&exception.of)
            ));
        }
    }
    Ok(())
}

/// The exceptions that options have; the same for each precision.
fn exceptions(options: &CompileOptions) -> Option<&Exceptions> {
    let weights = options.quantize_weights.as_ref().map(|weights| &weights.settings.keep);
    let layers = options.quantize.as_ref().map(|layers| &layers.settings.keep);
    weights.or(layers).or(options.passes.precision.as_ref().map(|precision| &precision.keep))
}

/// Whether an exception of the head or the table decided nothing.
fn is_idle(options: &CompileOptions, exception: &Exception, parts: &[LoweredPart]) -> bool {
    // Codes of 8 bits are what quantization of layers gives tables anyway.
    let is_usual = options.quantize.is_some() && exception.ty == KeptType::Eight;
    if matches!(exception.of, Named::Names(_)) || is_usual {
        return false;
    }
    let layers = parts.iter().filter_map(|part| part.quantization.as_ref()).flat_map(|of| &of.plan.weights);
    let weights = parts.iter().filter_map(|part| part.weight_quantization.as_ref()).flat_map(|of| &of.plan.weights);
    let says = |planned: &PlannedWeight| planned.form.reason().is_some_and(|reason| reason.contains(&exception.reason));
    !layers.chain(weights).any(says)
}

/// The error about an exception that names nothing.
fn unmatched(named: &Named, source: &Loaded) -> String {
    let what = match named {
        Named::Head => "planish found no layer that scores tokens",
        Named::Table => {
            "planish found no table of tokens beside the layer that scores them; where both are one weight, write @head"
        }
        Named::Names(_) => "nothing is named so that can keep another type",
    };
    let near = match named {
        Named::Names(pattern) => near(pattern.as_str(), source),
        Named::Head | Named::Table => Vec::new(),
    };
    let near = if near.is_empty() { String::new() } else { format!("; like it are {}", near.join(", ")) };
    format!(
        "--keep {}: {what}{near}; `planish compile --debug stop=0` prints the graph with the names of its nodes and weights",
        text(named)
    )
}

fn text(named: &Named) -> String {
    match named {
        Named::Head => planish_artifact::recipe::HEAD.to_owned(),
        Named::Table => planish_artifact::recipe::TABLE.to_owned(),
        Named::Names(pattern) => format!("`{pattern}`"),
    }
}

/// The names of a model that are most like a pattern.
fn near(pattern: &str, source: &Loaded) -> Vec<String> {
    let plain: String = pattern.chars().filter(|c| c.is_ascii_alphanumeric() || "._/-".contains(*c)).collect();
    let all: BTreeSet<&str> = source.parts.iter().flat_map(|part| names(&part.graph)).collect();
    let mut near: Vec<(f64, &str)> = all.into_iter().map(|name| (likeness(&plain, name), name)).collect();
    // Names that are as much alike stay in their order.
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(NEAR).map(|(_, name)| format!("`{name}`")).collect()
}

/// How much a word is like a name, or like a part of it between dots.
fn likeness(word: &str, name: &str) -> f64 {
    let parts = name.split(['.', '/']).chain([name]);
    parts.map(|part| strsim::jaro_winkler(word, part)).fold(0.0, f64::max)
}
