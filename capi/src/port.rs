//! Inputs and outputs of a model as C has them.

use std::ffi::{CString, c_char};

use anyhow::{Context, Result};
use planish_artifact::value::ValueInfo;

use crate::tensor::Dtype;

/// An input or an output of a model.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its name.
    pub name: *const c_char,
    /// The type of its elements: a planish_dtype.
    pub dtype: i32,
    /// The number of dimensions.
    pub rank: usize,
    /// The sizes of the dimensions, `rank` of them; -1 for one that each run chooses.
    pub sizes: *const i64,
}

/// A port with what it points to.
pub(crate) struct OwnedPort {
    view: Port,
    _name: CString,
    _sizes: Vec<i64>,
}

// SAFETY: the pointers of the view are into the other members, which nothing changes and which move with it.
unsafe impl Send for OwnedPort {}
// SAFETY: as above.
unsafe impl Sync for OwnedPort {}

impl OwnedPort {
    /// What a value is, by the name that it is given under.
    ///
    /// # Errors
    /// When C cannot have the name.
    pub(crate) fn new(name: &str, value: &ValueInfo) -> Result<Self> {
        let of_c = CString::new(name)
            .with_context(|| format!("the model has an input or output {name:?}, which C cannot name"))?;
        let sizes: Vec<i64> = value.dims().iter().map(|dim| dim.as_constant().unwrap_or(-1)).collect();
        let dtype = Dtype::of(value.dtype()) as i32;
        let view = Port { name: of_c.as_ptr(), dtype, rank: sizes.len(), sizes: sizes.as_ptr() };
        Ok(Self { view, _name: of_c, _sizes: sizes })
    }

    /// As C sees it, as long as this lives.
    pub(crate) fn view(&self) -> &Port {
        &self.view
    }
}
