//! The limits by which the form of an attention is chosen, which a measurement can set.

use planish_ir::AttentionKernels;

/// The environment variable that sets limits in place of those of the device, e.g. `split_rows=0,blocks=1000`: a sweep measures
/// the forms of attention with it (docs/gpu.md).
pub(crate) const VARIABLE: &str = "PLANISH_CUDA_LIMITS";

/// The limits of a device, with those that the environment sets.
///
/// # Errors
/// When the environment sets what is no limit.
pub(super) fn of_environment(device: AttentionKernels) -> Result<AttentionKernels, String> {
    match std::env::var(VARIABLE) {
        Ok(text) => set(device, &text),
        Err(_) => Ok(device),
    }
}

fn set(mut limits: AttentionKernels, text: &str) -> Result<AttentionKernels, String> {
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let AttentionKernels { largest_head, split_rows, blocks, scores, float_scores } = &mut limits;
        let known = [
            ("largest_head", largest_head),
            ("split_rows", split_rows),
            ("blocks", blocks),
            ("scores", scores),
            ("float_scores", float_scores),
        ];
        let names = known.each_ref().map(|(name, _)| *name).join(", ");
        let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
        let limit = known.into_iter().find(|(known, _)| *known == name).map(|(_, limit)| limit);
        match (limit, value.parse()) {
            (Some(limit), Ok(value)) => *limit = value,
            _ => return Err(format!("{VARIABLE} has `{entry}`; each entry is NAME=NUMBER with one of {names}")),
        }
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_their_names() {
        let device =
            AttentionKernels { largest_head: 256, split_rows: 16, blocks: 264, scores: 1 << 28, float_scores: 1 << 26 };
        assert_eq!(set(device, ""), Ok(device));
        let wanted = AttentionKernels { split_rows: 0, blocks: 1000, ..device };
        assert_eq!(set(device, "split_rows=0,blocks=1000"), Ok(wanted));
        for wrong in ["tiles=1", "blocks", "blocks=-1", "blocks=many"] {
            let error = set(device, wrong).unwrap_err();
            assert!(error.contains(wrong) && error.contains("largest_head, split_rows, blocks"), "{error}");
        }
    }
}
