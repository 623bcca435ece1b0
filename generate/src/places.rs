//! The places of images in prompts: what processors of the transformers library put there, of the texts of models that see.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_data::tokenizer::TextTokenizer;
use planish_data::tokenizer::document::Document;
use planish_data::tokenizer::token;
use planish_ir::{Bindings, OutputRole, PartRole};

use super::images::processor;

/// The kinds of models, by how they write an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As many tokens as there are places.
    Plain,
    /// The same between tokens that begin and end it, and line breaks around these.
    Framed,
    /// Rows of tiles, and then the whole image, each after a token that says which.
    Tiles,
    /// All images, then the token that begins texts, the text and a line break.
    First,
}

/// The types of models with their kinds, and the ids of tokens of images where the configuration does not say them.
const TYPES: [(&str, Kind, i64); 5] = [
    ("gemma3", Kind::Framed, 262_144),
    ("idefics3", Kind::Tiles, 128_257),
    ("llava", Kind::Plain, 32_000),
    ("paligemma", Kind::First, 256_000),
    ("smolvlm", Kind::Tiles, 128_257),
];

/// Which tokens see each other whatever their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Those of an image.
    Images,
    /// Those of a prompt.
    Prompt,
}

/// The configuration of a model that sees.
struct Own {
    kind: Kind,
    token: i64,
    /// The tokens that begin and end an image, where there are some.
    frame: [i64; 2],
}

/// What config.json says.
fn own(folder: &Path) -> Result<Own> {
    const FILE: &str = "config.json";
    let mut document =
        Document::open(&folder.join(FILE))?.with_context(|| format!("{} has no {FILE}", folder.display()))?;
    let name = document.take("model_type", "a type of models", |value| value.as_str().map(str::to_owned))?;
    let name = name.unwrap_or_default();
    let found = TYPES.iter().find(|(known, ..)| *known == name);
    let (_, kind, usual) = found.with_context(|| {
        let names: Vec<&str> = TYPES.iter().map(|(name, ..)| *name).collect();
        format!(
            "`model_type` of {} is {name}, and images are read for {}",
            folder.join(FILE).display(),
            names.join(", ")
        )
    })?;
    let mut id = |names: [&str; 2], usual: i64| -> Result<i64> {
        for name in names {
            if let Some(id) = document.take(name, "a token id", serde_json::Value::as_i64)? {
                return Ok(id);
            }
        }
        Ok(usual)
    };
    let token = id(["image_token_id", "image_token_index"], *usual)?;
    let frame = [id(["boi_token_id", "boi_token_index"], 255_999)?, id(["eoi_token_id", "eoi_token_index"], 256_000)?];
    Ok(Own { kind: *kind, token, frame })
}

/// The id of a token that stands for a place of an image, of the artifact in a folder.
///
/// # Errors
/// When its config.json cannot be read, or is of a type that is not known.
pub(super) fn image_token(folder: &Path) -> Result<i64> {
    Ok(own(folder)?.token)
}

/// Which tokens see each other, where the decoder of an artifact asks for that.
///
/// # Errors
/// As of [`image_token`].
pub(super) fn together(folder: &Path) -> Result<Seen> {
    Ok(if own(folder)?.kind == Kind::First { Seen::Prompt } else { Seen::Images })
}

/// How an artifact writes images in prompts.
pub(super) struct Places {
    own: Own,
    /// Places of an image, or of a tile of one.
    count: usize,
}

impl Places {
    /// Of an artifact.
    ///
    /// # Errors
    /// When its configuration cannot be read, or is of a type that is not known.
    pub(super) fn read(artifact: &Artifact) -> Result<Self> {
        let part = artifact.manifest.parts.iter().find(|part| part.role == PartRole::VisionEncoder);
        let part =
            part.with_context(|| format!("{} has no part that sees; compile it again", artifact.folder.display()))?;
        let ones: Bindings = part.symbols.keys().map(|symbol| (symbol.clone(), 1)).collect();
        let output = part.outputs.iter().find(|output| output.role == OutputRole::Embeddings);
        let rows = output.and_then(|output| output.value.dims().first()?.evaluate(&ones));
        let count = rows.and_then(|rows| usize::try_from(rows).ok());
        let count = count
            .with_context(|| format!("{} does not say how many places an image has", artifact.folder.display()))?;
        Ok(Self { own: own(&artifact.folder)?, count })
    }

    /// Whether texts have all special tokens after images are in them.
    pub(super) fn are_whole_texts(&self) -> bool {
        self.own.kind == Kind::First
    }

    /// The places of files of images: rows and columns of tiles of each.
    fn grids(artifact: &Artifact, images: &[PathBuf]) -> Result<Vec<[usize; 2]>> {
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let processor = processor(artifact)?;
        images.iter().map(|path| processor.grid(path)).collect()
    }

    /// Refuses token ids with another number of places than images have.
    ///
    /// # Errors
    /// When they have another one, or an image cannot be read.
    pub(super) fn check(&self, ids: &[i64], artifact: &Artifact, images: &[PathBuf]) -> Result<()> {
        let grids = Self::grids(artifact, images)?;
        let wanted: usize = grids.iter().map(|[rows, columns]| (rows * columns + 1) * self.count).sum();
        let have = ids.iter().filter(|id| **id == self.own.token).count();
        if have == wanted {
            return Ok(());
        }
        bail!(
            "the prompt has {have} tokens that stand for places of images (id {}), and the {} images of it have {wanted} places",
            self.own.token,
            images.len()
        )
    }

    /// A text with what stands for each image at its place.
    ///
    /// # Errors
    /// When it has more or fewer places than images, an image cannot be read, or the tokenizer has no token for one.
    pub(super) fn fill(
        &self,
        text: &str,
        artifact: &Artifact,
        images: &[PathBuf],
        tokenizer: &TextTokenizer,
    ) -> Result<String> {
        let written = |id: i64| -> Result<String> {
            let texts = tokenizer.each(vec![u32::try_from(id)?])?;
            let text = texts.into_iter().next().filter(|text| !text.is_empty());
            text.with_context(|| {
                format!("the tokenizer of {} has no token with the id {id}", artifact.folder.display())
            })
        };
        let Own { kind, token: image, frame } = &self.own;
        let image = written(*image)?;
        let place = if *kind == Kind::Framed { written(frame[0])? } else { image.clone() };
        let mut text = text.to_owned();
        if *kind == Kind::First {
            let begin = token(&artifact.folder, "bos_token_id")?.map(written).transpose()?.unwrap_or_default();
            if !text.contains(&place) {
                text = place.repeat(images.len()) + &text;
            }
            let at = text.rfind(&place).map_or(0, |at| at + place.len());
            text = format!("{}{begin}{}\n", &text[..at], &text[at..]);
        }
        let pieces: Vec<&str> = text.split(&place).collect();
        if pieces.len() != images.len() + 1 {
            let (places, count) = (pieces.len() - 1, images.len());
            bail!(
                "the prompt has {places} places of images (`{place}`), and {count} images are given; write `{place}` where each image \
                 belongs, or have the chat template do so with --chat"
            );
        }
        let full = image.repeat(self.count);
        let one = |[rows, columns]: [usize; 2]| -> Result<String> {
            Ok(match kind {
                Kind::Plain | Kind::First => full.clone(),
                Kind::Framed => format!("\n\n{place}{full}{}\n\n", written(frame[1])?),
                Kind::Tiles => tiles(rows, columns, &full),
            })
        };
        let mut filled = String::new();
        let mut pieces = pieces.into_iter();
        filled += pieces.next().unwrap_or_default();
        for (piece, grid) in pieces.zip(Self::grids(artifact, images)?) {
            filled += &one(grid)?;
            filled += piece;
        }
        Ok(filled)
    }
}

/// Rows of tiles and the whole image, each after the tokens that say which.
fn tiles(rows: usize, columns: usize, image: &str) -> String {
    const AROUND: &str = "<fake_token_around_image>";
    const WHOLE: &str = "<global-img>";
    let mut text = String::new();
    for row in 1..=rows {
        for column in 1..=columns {
            text += &format!("{AROUND}<row_{row}_col_{column}>{image}");
        }
        text += "\n";
    }
    if rows > 0 {
        text += "\n";
    }
    text + &format!("{AROUND}{WHOLE}{image}{AROUND}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_written_as_the_processor_of_idefics3_does() {
        let around = "<fake_token_around_image>";
        assert_eq!(tiles(0, 0, "<i><i>"), format!("{around}<global-img><i><i>{around}"));
        let expected = format!("{around}<row_1_col_1><i>{around}<row_1_col_2><i>\n\n{around}<global-img><i>{around}");
        assert_eq!(tiles(1, 2, "<i>"), expected);
    }
}
