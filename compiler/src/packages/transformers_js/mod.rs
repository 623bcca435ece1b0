//! What Transformers.js loads beside the graphs of an artifact: `decoder_model_merged.onnx`, which Transformers.js runs in the place of both decoders of an encoder-decoder: one graph with a
//! switch, as Optimum's `merge_decoders` makes it. The decoder that goes on from a cache is chosen by an input.

pub(super) mod config;

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result};
use bytes::Bytes;
use planish_artifact::Artifact;
use planish_artifact::manifest::{File, Manifest, SWITCH};
use planish_files::Kind;
use planish_ir::PartRole;
use planish_onnx::merge;

/// The name of the graph, without its ending.
const MERGED: &str = "decoder_model_merged";

/// A decoder, which is read whole.
const DECODER: Kind = Kind {
    what: "the graph of a decoder",
    limit: 2 << 30,
    advice: "leave out --package transformers-js, or compile with --fp16, --int8 or --int4",
};

/// Writes the graph into an artifact that has both decoders, and adds it to the manifest; nothing where the model has no two
/// decoders.
///
/// # Errors
/// When the decoders are too large for one file, or a file cannot be read or written.
pub(super) fn merge_decoders(artifact: &mut Artifact) -> Result<()> {
    let part = |role: PartRole| artifact.manifest.parts.iter().find(|part| part.role == role);
    let (Some(first), Some(next)) = (part(PartRole::FirstStep), part(PartRole::NextStep)) else { return Ok(()) };
    let read = |files: &[String]| -> Result<Bytes> {
        let file = files.first().context("a decoder has no file")?;
        Ok(planish_files::read(&artifact.folder.join(file), &DECODER)?.into())
    };
    let layout = artifact.manifest.layout(&first.name);
    let name = artifact.manifest.layout(MERGED).graph();
    let mut known: HashMap<String, Bytes> = HashMap::new();
    let mut outside = |name: &str| match known.get(name) {
        Some(bytes) => Ok(bytes.clone()),
        None => {
            let path = artifact.folder.join(layout.named(name));
            let bytes: Bytes = planish_files::read(&path, &DECODER).map_err(|error| error.to_string())?.into();
            known.insert(name.to_owned(), bytes.clone());
            Ok(bytes)
        }
    };
    let merged = merge(read(&first.files)?, read(&next.files)?, SWITCH, &mut outside)
        .context("--package transformers-js: the decoders cannot be one graph")?;
    let path = artifact.folder.join(&name);
    fs::write(&path, &merged).with_context(|| format!("cannot write {}", path.display()))?;
    let Manifest { files, merged: named, .. } = &mut artifact.manifest;
    files.push(File { name: name.clone(), bytes: merged.len() as u64, blake3: None });
    *named = Some(name);
    Ok(())
}
