//! Models that are parts of a model, each with a configuration and with names of tensors of its own.

use std::collections::HashMap;

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
        let mut inner = Builder {
            graph: Graph::new(&self.graph.name),
            config,
            tensors: self.tensors.of_part(architecture, module),
            warnings: Vec::new(),
            pad_token_id: architecture.pad_token_id,
            is_bare: true,
            chooses: false,
            images: self.images,
            pictures: self.pictures,
            has_pictures: false,
            latent_cache: self.latent_cache,
            has_latents: false,
            id_ranges: Vec::new(),
            parts: Vec::new(),
            weights: HashMap::new(),
        };
        let built = build(&mut inner)?;
        let Builder { tensors, warnings, has_pictures, has_latents, parts, .. } = inner;
        self.tensors.end_part(tensors, module, architecture.unused_tensors);
        self.warnings.extend(warnings);
        self.has_pictures |= has_pictures;
        self.has_latents |= has_latents;
        self.parts.extend(parts);
        Ok(built)
    }
}
