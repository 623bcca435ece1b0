//! The report on half precision, for people.

use planish_passes::precision::{Kept, Loss, PartPrecision};

/// The most lines of one kind; planish.json has them all.
const MAX_LINES: usize = 12;

/// Lines for a person about a part, the first without the name of the precision; `computed` says whether the target computes in
/// it.
pub(super) fn lines(precision: &PartPrecision, computed: bool) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut lines = vec![match computed {
        true => format!(
            "{} of the operations of products, {} of the weights' bytes",
            percent(precision.flops),
            percent(precision.bytes)
        ),
        false => format!("{} of the weights' bytes are stored in it; computed in float32", percent(precision.bytes)),
    }];
    let kept = |kept: &Kept| {
        // Most go by the name of where they came from.
        let from = if kept.origin.contains(&kept.name) { String::new() } else { format!(" ({})", kept.origin) };
        format!("  float32: {} `{}`{from}: {}", kept.operator, kept.name, kept.reason)
    };
    lines.extend(precision.kept.iter().take(MAX_LINES).map(kept));
    rest(&mut lines, precision.kept.len(), "operators are kept in float32");
    let near = |(name, magnitude): (&String, &f64)| format!("  near the limit: `{name}` reaches {magnitude:.3e}");
    lines.extend(precision.near.iter().take(MAX_LINES).map(near));
    rest(&mut lines, precision.near.len(), "values are near the limit");
    let underflow = |loss: &Loss| {
        format!(
            "  underflow: {} of {} elements of `{}` become 0; its largest is {:.1e}",
            loss.underflows, loss.elements, loss.name, loss.max_abs
        )
    };
    lines.extend(precision.losses.iter().take(MAX_LINES).map(underflow));
    rest(&mut lines, precision.losses.len(), "weights underflow");
    lines
}

fn rest(lines: &mut Vec<String>, count: usize, what: &str) {
    if count > MAX_LINES {
        lines.push(format!("  {} more {what}; planish.json has them all", count - MAX_LINES));
    }
}
