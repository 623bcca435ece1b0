//! Images beside prompts, and what the text of a model begins with whose encoder reads them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_artifact::manifest::PartManifest;
use planish_data::PictureInputs;
use planish_data::tokenizer::document::Document;
use planish_eval::Tensor;
use planish_ir::{InputRole, PartRole};
use planish_models::Task;
use serde_json::Value;

/// What a model reads besides token ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing.
    Blind,
    /// An image for each text, in place of a prompt: the encoder reads it, and a prompt is what the text begins with.
    Encoder(Beginning),
    /// Images whose places are tokens of a prompt.
    Places,
}

/// What the text of an encoder-decoder begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The start token alone: the encoder reads the prompt.
    Start,
    /// The start token and then the prompt, where that has no start token of its own.
    Prompt,
    /// The prompt or, where there is none, the start token: prompts of Donut begin with a token of their own, as
    /// `GenerationMixin._prepare_decoder_input_ids_for_generation` of the transformers library takes it.
    PromptAlone,
}

impl Beginning {
    /// The tokens that a text begins with.
    pub(super) fn of(self, start: i64, prompt: &[i64]) -> Vec<i64> {
        match self {
            Self::Start => vec![start],
            Self::PromptAlone if !prompt.is_empty() => prompt.to_vec(),
            Self::Prompt if prompt.first() == Some(&start) => prompt.to_vec(),
            Self::Prompt | Self::PromptAlone => [&[start], prompt].concat(),
        }
    }
}

/// Whether prompts are tokens that the first part reads; the encoder of other models reads images or sound.
#[must_use]
pub fn reads_prompts(artifact: &Artifact) -> bool {
    let encoder = artifact.manifest.parts.iter().find(|part| part.role == PartRole::Encoder);
    encoder.is_none_or(|encoder| reads(encoder, InputRole::TokenIds))
}

fn reads(part: &PartManifest, role: InputRole) -> bool {
    part.inputs.iter().any(|input| input.role == role)
}

impl Sight {
    /// Of an artifact.
    ///
    /// # Errors
    /// When its encoder reads neither texts nor images, or its configuration cannot be read.
    pub(super) fn of(artifact: &Artifact) -> Result<Self> {
        if artifact.manifest.task == Some(Task::ImageTextToText) {
            return Ok(Self::Places);
        }
        let encoder = artifact.manifest.parts.iter().find(|part| part.role == PartRole::Encoder);
        let Some(encoder) = encoder.filter(|encoder| !reads(encoder, InputRole::TokenIds)) else {
            return Ok(Self::Blind);
        };
        if ![InputRole::Pixels, InputRole::Image].iter().any(|role| reads(encoder, *role)) {
            let inputs: Vec<&str> = encoder.inputs.iter().map(|input| input.value.name.as_str()).collect();
            let inputs = inputs.join("`, `");
            match artifact.manifest.task {
                Some(Task::AutomaticSpeechRecognition) => bail!(
                    "the encoder reads `{inputs}` of recordings: planish transcribe {} writes down what they say",
                    artifact.folder.display()
                ),
                _ => bail!("the encoder reads `{inputs}`, and `generate` gives texts and images"),
            }
        }
        Ok(Self::Encoder(if is_donut(&artifact.folder)? { Beginning::PromptAlone } else { Beginning::Prompt }))
    }

    /// What the text of an encoder-decoder begins with.
    pub(super) fn beginning(self) -> Beginning {
        match self {
            Self::Blind | Self::Places => Beginning::Start,
            Self::Encoder(beginning) => beginning,
        }
    }

    /// Refuses a prompt with another number of images than the model reads.
    ///
    /// # Errors
    /// When it has another one.
    pub(super) fn check(self, images: usize) -> Result<()> {
        match (self, images) {
            (Self::Blind, 0) | (Self::Encoder(_), 1) | (Self::Places, _) => Ok(()),
            (Self::Blind, _) => bail!("the model reads texts and no images; leave the images out"),
            (Self::Encoder(_), 0) => bail!(
                "the model reads an image; give one with --image FILE, or each line of --prompts its own as \"images\": [\"FILE\"]"
            ),
            (Self::Encoder(_), count) => bail!(
                "the model reads one image for each text, and {count} are given; give one --image, or lines of --prompts with an image each"
            ),
        }
    }
}

/// Whether the encoder of an artifact is that of Donut.
fn is_donut(folder: &Path) -> Result<bool> {
    let Some(mut document) = Document::open(&folder.join("config.json"))? else { return Ok(false) };
    let encoder = document.take("encoder", "the configuration of an encoder", |value| Some(value.clone()))?;
    let kind = encoder.as_ref().and_then(|encoder| encoder.get("model_type")).and_then(Value::as_str);
    Ok(kind.is_some_and(|kind| kind.contains("donut")))
}

/// Files of images as inputs of the part of an artifact that reads them, a row each, as its processor makes them.
///
/// # Errors
/// When a file is no picture, is damaged or has another size than the model takes; or when the artifact does not say how pictures
/// become inputs.
pub(super) fn inputs(artifact: &Artifact, images: &[PathBuf]) -> Result<Vec<(String, Tensor)>> {
    let inputs = processor(artifact)?;
    let pictures = images.iter().map(|path| inputs.tiles(path)).collect::<Result<Vec<_>>>()?;
    inputs.inputs(pictures.concat())
}

/// What makes inputs of pictures for the part of an artifact that reads them.
///
/// # Errors
/// When no part does, or the artifact does not say how pictures become inputs.
pub(super) fn processor(artifact: &Artifact) -> Result<PictureInputs> {
    let seeing = |part: &&PartManifest| [InputRole::Pixels, InputRole::Image].iter().any(|role| reads(part, *role));
    let part = artifact.manifest.parts.iter().find(seeing).context("no part of the model reads images")?;
    let wanted: Vec<_> = part.inputs.iter().map(|input| (input.value.name.as_str().into(), input)).collect();
    PictureInputs::new(&wanted, &artifact.folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_begin_with_the_start_token_or_the_prompt() {
        assert_eq!(Beginning::Start.of(7, &[1, 2]), [7]);
        assert_eq!(Beginning::Prompt.of(7, &[]), [7]);
        assert_eq!(Beginning::Prompt.of(7, &[1, 2]), [7, 1, 2]);
        assert_eq!(Beginning::Prompt.of(7, &[7, 2]), [7, 2]);
        assert_eq!(Beginning::PromptAlone.of(7, &[1, 2]), [1, 2]);
        assert_eq!(Beginning::PromptAlone.of(7, &[]), [7]);
    }

    #[test]
    fn a_model_says_how_many_images_it_reads() {
        let seeing = Sight::Encoder(Beginning::Prompt);
        assert!(Sight::Blind.check(0).is_ok() && seeing.check(1).is_ok());
        let error = |sight: Sight, images| sight.check(images).unwrap_err().to_string();
        assert!(error(Sight::Blind, 1).contains("no images"));
        assert!(error(seeing, 0).contains("--image FILE"));
        assert!(error(seeing, 2).contains("2 are given"));
    }
}
