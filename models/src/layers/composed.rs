//! Models that are parts of a model, each with a configuration and with names of tensors of its own.

use planish_ir::Graph;

use crate::checkpoint::config::Config;
use crate::layers::builder::Builder;
use crate::{Architecture, ModelError};

impl Builder<'_> {
    /// Builds parts of the model that are a model of an architecture of its own: `config` is its configuration, and the names of its
    /// tensors begin with `module`. Names that are not there are looked for in the whole.
    ///
    /// # Errors
    /// When `build` fails.
    pub(crate) fn of_model<T>(
        &mut self,
        config: &Config<'_>,
        architecture: &Architecture,
        module: &str,
        build: impl FnOnce(&mut Builder<'_>) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let tensors = self.tensors.of_part(architecture, module);
        let mut inner = Builder {
            is_bare: true,
            images: self.images,
            pictures: self.pictures,
            sounds: self.sounds.clone(),
            latent_cache: self.latent_cache,
            ..Builder::of(Graph::new(&self.graph.name), config, tensors, architecture)
        };
        let built = build(&mut inner)?;
        let Builder { tensors, warnings, has_pictures, has_sounds, has_latents, parts, .. } = inner;
        self.tensors.end_part(tensors, module, architecture.unused_tensors);
        self.warnings.extend(warnings);
        self.has_pictures |= has_pictures;
        self.has_sounds |= has_sounds;
        self.has_latents |= has_latents;
        self.parts.extend(parts);
        Ok(built)
    }
}
