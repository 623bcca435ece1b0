//! Inputs of models that files become.

use std::borrow::Cow;

use anyhow::{Result, bail};
use planish_artifact::manifest::Input;
use planish_ir::{DType, InputRole};

/// An input of a model.
pub(super) struct Port {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) input: Input,
}

impl Port {
    /// The input of a role, if the model has one.
    ///
    /// # Errors
    /// When its type is not known.
    pub(super) fn find(wanted: &[(Cow<'_, str>, &Input)], role: InputRole) -> Result<Option<Self>> {
        let Some((name, input)) = wanted.iter().find(|(_, input)| input.role == role) else { return Ok(None) };
        let Some(dtype) = input.value.dtype() else { bail!("the input `{name}` is {}", input.value.ty) };
        Ok(Some(Self { name: name.clone().into_owned(), dtype, input: (*input).clone() }))
    }
}
