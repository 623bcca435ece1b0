//! Whether the inputs of a batch are what a model takes.

use std::borrow::Cow;

use anyhow::{Result, bail};
use planish_artifact::manifest::Input;
use planish_eval::Tensor;
use planish_ir::Dim;

/// Checks that each sample has a real token. A mask of more dimensions, or of floats, is one that is added to scores.
pub(super) fn check_masks(inputs: &[(String, Tensor)], wanted: &[(Cow<'_, str>, &Input)], first: usize) -> Result<()> {
    let is_of_tokens = |(name, mask): &&(String, Tensor)| {
        let is_mask = wanted.iter().any(|(other, input)| other == name && input.role.is_mask());
        is_mask && mask.shape().len() == 2 && !mask.dtype().is_float()
    };
    for (name, mask) in inputs.iter().filter(is_of_tokens) {
        let width = mask.shape().iter().skip(1).product::<usize>().max(1);
        if let Some(row) = mask.to_f64().chunks(width).position(|row| row.iter().all(|real| *real == 0.0)) {
            bail!(
                "`{name}` of sample {} is 0 everywhere, so that none of its tokens is real; leave it out",
                first + row + 1
            );
        }
    }
    Ok(())
}

/// Checks element types and sizes. `is_run` says that the tensors are those of one run, and no rows of samples.
pub(super) fn check_types(inputs: &[(String, Tensor)], wanted: &[(Cow<'_, str>, &Input)], is_run: bool) -> Result<()> {
    for (name, tensor) in inputs {
        let Some((_, input)) = wanted.iter().find(|(other, _)| other == name) else { continue };
        let (dims, shape) = (input.value.dims(), tensor.shape());
        let same =
            |(dim, size): (&Dim, &usize)| dim.as_constant().is_none_or(|fixed| usize::try_from(fixed) == Ok(*size));
        let fits = dims.len() == shape.len() && dims.iter().zip(shape).all(same);
        if !fits || input.value.dtype() != Some(tensor.dtype()) {
            let (given, takes) = (format!("{}{shape:?}", tensor.dtype()), &input.value.ty);
            match is_run {
                true => bail!("`{name}` is {given}; the model takes {takes}, and a file has the inputs of one run"),
                false => bail!("`{name}` is {given}, a batch included; the model takes {takes}"),
            }
        }
    }
    Ok(())
}
