//! What a run gave, as C has it.

use std::ffi::CString;

use anyhow::{Context, Result};
use planish_eval::Tensor;

use crate::tensor::TensorView;

/// The outputs of a run, which planish owns. planish_free_results frees them.
pub struct Results(Vec<OwnedTensor>);

/// A tensor with what its view points to.
struct OwnedTensor {
    view: TensorView,
    name: CString,
    _tensor: Tensor,
}

impl Results {
    /// The outputs by their names.
    ///
    /// # Errors
    /// When C cannot have a name.
    pub(crate) fn new(outputs: Vec<(String, Tensor)>) -> Result<Self> {
        let owned = |(name, tensor): (String, Tensor)| {
            let of_c = CString::new(name.as_str()).with_context(|| format!("C cannot name the output {name:?}"))?;
            Ok(OwnedTensor { view: TensorView::of(of_c.as_ptr(), &tensor), name: of_c, _tensor: tensor })
        };
        Ok(Self(outputs.into_iter().map(owned).collect::<Result<_>>()?))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// One of them, in order.
    pub(crate) fn at(&self, index: usize) -> Option<&TensorView> {
        self.0.get(index).map(|output| &output.view)
    }

    /// The one of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&TensorView> {
        self.0.iter().find(|output| output.name.as_bytes() == name.as_bytes()).map(|output| &output.view)
    }
}
