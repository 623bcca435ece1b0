//! Weights that cannot be linked, because the graph needs them in another form.

use std::collections::BTreeSet;

use planish_ir::{DType, Weight};
use planish_onnx::INLINE_BYTES;

/// Why some weights of a model will be copied, though links were asked for; `None` where all are
/// linked but those so small that they are in the model file. `is_copied` says whether one is.
pub(crate) fn warning<'a>(
    weights: impl Iterator<Item = &'a Weight>,
    is_copied: impl Fn(&Weight) -> bool,
) -> Option<String> {
    let (mut all, mut copied, mut widened) = (0, 0, BTreeSet::new());
    for weight in weights.filter(|weight| weight.bytes() >= INLINE_BYTES) {
        let mut stored = BTreeSet::new();
        stored_types(weight, &mut stored);
        // What has no type in a file was computed.
        if !stored.is_empty() {
            all += weight.bytes();
            if is_copied(weight) {
                copied += weight.bytes();
                widened.extend(stored.into_iter().filter(|dtype| *dtype != weight.dtype()));
            }
        }
    }
    let share = match copied {
        0 => return None,
        _ if copied == all => "weights".to_owned(),
        _ => format!("{}% of the weights", (copied as f64 / all as f64 * 100.0).ceil()),
    };
    let names: Vec<String> = widened.into_iter().map(name).collect();
    Some(match names.as_slice() {
        [] => format!("{share} are transposed, joined or padded for the graph: copied, not linked"),
        names => format!("{share} are {}: converted and copied, not linked", names.join(", ")),
    })
}

/// The types of the elements in the files that a weight is made from.
fn stored_types(weight: &Weight, types: &mut BTreeSet<DType>) {
    weight.visit_leaves(&mut |leaf| types.extend(leaf.as_stored().map(|_| leaf.dtype())));
}

/// A type as configurations of checkpoints name it.
fn name(dtype: DType) -> String {
    match dtype {
        DType::F16 => "float16".to_owned(),
        DType::Bf16 => "bfloat16".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use planish_ir::WeightSource;
    use planish_ir::weight::StoredRange;
    use planish_models::Checkpoint;

    use super::*;

    fn stored(dtype: DType, rows: usize) -> Weight {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/goldens/bert");
        let source: std::sync::Arc<dyn WeightSource> = Checkpoint::open(&folder).unwrap().weight_files()[0].clone();
        Weight::stored(dtype, vec![rows, 64], StoredRange { source, offset: 8 }).unwrap()
    }

    #[test]
    fn what_is_copied_is_named_with_its_reason() {
        let warned = |weights: &[Weight]| warning(weights.iter(), |weight| weight.as_stored().is_none());
        let plain = stored(DType::F32, 30);
        let half = stored(DType::Bf16, 10).cast(DType::F32).unwrap();
        assert_eq!(warned(std::slice::from_ref(&plain)), None);
        assert_eq!(warned(&[stored(DType::Bf16, 1).cast(DType::F32).unwrap()]), None, "256 bytes are never linked");
        let computed = Weight::numbers(DType::F32, vec![512], &[0.5; 512]).unwrap();
        assert_eq!(warned(&[plain.clone(), computed]), None);
        let both = warned(&[half.clone(), half.transpose(&[1, 0]).unwrap()]);
        assert_eq!(both.unwrap(), "weights are bfloat16: converted and copied, not linked");
        let some = warned(&[plain.clone(), half]).unwrap();
        assert_eq!(some, "25% of the weights are bfloat16: converted and copied, not linked");
        let turned = warned(&[plain.transpose(&[1, 0]).unwrap()]).unwrap();
        let larger = warned(&[plain.pad(&[32, 64], 0.0).unwrap()]).unwrap();
        assert_eq!(larger, turned);
        assert_eq!(turned, "weights are transposed, joined or padded for the graph: copied, not linked");
    }
}
