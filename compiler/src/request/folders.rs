//! The folder that an artifact goes to.

use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_artifact::coverage::Extent;

use super::Request;
use crate::compile::{Compiled, check_output, default_folder};
use crate::recipe::Resolved;
use crate::source::SourceModel;

/// The folder that a user names, or the usual ones: how much of a model becomes codes decides which of them it is.
#[derive(Debug)]
pub struct Folders {
    named: Option<PathBuf>,
    usual: [(Extent, PathBuf); 3],
}

impl Folders {
    pub(super) fn of(request: &Request, resolved: &Resolved, source: &SourceModel) -> Self {
        // A folder of several variants is named after none.
        let resolved = Some(resolved).filter(|_| request.variant.is_none());
        let half = resolved.and_then(|of| of.half.as_ref()).map(|precision| precision.half);
        let quantize = resolved.and_then(|of| of.quantize.as_ref());
        let weights = resolved.and_then(|of| of.quantize_weights.as_ref());
        let ranks = request.tensor_parallel.map(|ranks| format!("-tp{ranks}")).unwrap_or_default();
        let stages = request.pipeline.map(|stages| format!("-pp{stages}")).unwrap_or_default();
        let folder = |extent| {
            let folder = default_folder(source, request.backend, half, quantize, weights, extent, request.package);
            PathBuf::from(format!("{}{ranks}{stages}", folder.display()))
        };
        let usual = [Extent::Most, Extent::Part, Extent::Nothing].map(|extent| (extent, folder(extent)));
        Self { named: request.output.clone(), usual }
    }

    /// The folder, before it is known how much of the model becomes codes.
    #[must_use]
    pub fn first(&self) -> &Path {
        self.named.as_deref().unwrap_or(&self.usual[0].1)
    }

    /// Checks that an artifact may be in any of the folders, before work that would be in vain.
    pub(super) fn check(&self, source: &SourceModel, force: bool) -> Result<()> {
        let usual = self.usual.iter().map(|(_, folder)| folder.as_path()).filter(|_| self.named.is_none());
        usual.chain([self.first()]).try_for_each(|folder| check_output(source, folder, force))
    }

    /// Gives an artifact the folder that says how much of it is codes, where the user names none.
    ///
    /// # Errors
    /// When the artifact cannot be there.
    pub fn settle(&self, compiled: &mut Compiled, source: &SourceModel) -> Result<()> {
        let Some(coverage) = compiled.coverage().filter(|_| self.named.is_none()) else { return Ok(()) };
        match self.usual.iter().find(|(extent, _)| *extent == coverage.extent()) {
            Some((_, folder)) => compiled.rename(source, folder),
            None => Ok(()),
        }
    }
}
