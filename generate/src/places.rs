//! The places of images in prompts: what processors of the transformers library put there, of the texts of models that see.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_data::tokenizer::TextTokenizer;
use planish_data::tokenizer::token;
use planish_ir::{Bindings, OutputRole, PartRole};
use planish_models::{ImagePlaces, PlacesForm};

use super::images::processor;

/// Frames, rows and columns of the places of an image.
pub(super) type Grid = [usize; 3];

/// How prompts of an artifact write images.
///
/// # Errors
/// When its manifest does not say.
pub(super) fn of_manifest(artifact: &Artifact) -> Result<ImagePlaces> {
    artifact.manifest.places.with_context(|| {
        format!("the manifest of {} does not say how prompts write images; compile it again", artifact.folder.display())
    })
}

/// How an artifact writes images in prompts.
pub(super) struct Places {
    own: ImagePlaces,
    /// Places of an image, or of a tile of one, where all have as many.
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
        Ok(Self { own: of_manifest(artifact)?, count })
    }

    /// Whether texts have all special tokens after images are in them.
    pub(super) fn are_whole_texts(&self) -> bool {
        self.own.form == PlacesForm::First
    }

    /// The places of files of images: rows and columns of tiles of each, or of patches.
    fn grids(&self, artifact: &Artifact, images: &[PathBuf]) -> Result<Vec<[usize; 2]>> {
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let processor = processor(artifact)?;
        if let (PlacesForm::Grid { merge }, Some(own)) = (self.own.form, processor.side_of_squares())
            && own != merge
        {
            bail!(
                "`merge_size` of the processor of pictures in {} is {own}, and the model makes a place of {merge} x {merge} patches; set \
                 it to {merge}",
                artifact.folder.display()
            );
        }
        images.iter().map(|path| processor.grid(path)).collect()
    }

    /// The places of an image of a grid.
    fn places(&self, [rows, columns]: [usize; 2]) -> usize {
        match self.own.form {
            PlacesForm::Grid { merge } => rows * columns / (merge * merge),
            _ => (rows * columns + 1) * self.count,
        }
    }

    /// Refuses token ids with another number of places than images have.
    ///
    /// # Errors
    /// When they have another one, or an image cannot be read.
    pub(super) fn check(&self, ids: &[i64], artifact: &Artifact, images: &[PathBuf]) -> Result<()> {
        let grids = self.grids(artifact, images)?;
        let wanted: usize = grids.into_iter().map(|grid| self.places(grid)).sum();
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
        let form = self.own.form;
        let image = written(self.own.token)?;
        let place = if let PlacesForm::Framed { begin, .. } = form { written(begin)? } else { image.clone() };
        let mut text = text.to_owned();
        if form == PlacesForm::First {
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
            Ok(match form {
                PlacesForm::Plain | PlacesForm::First => full.clone(),
                PlacesForm::Framed { end, .. } => format!("\n\n{place}{full}{}\n\n", written(end)?),
                PlacesForm::Tiles => tiles(rows, columns, &full),
                PlacesForm::Grid { .. } => image.repeat(self.places([rows, columns])),
            })
        };
        let mut filled = String::new();
        let mut pieces = pieces.into_iter();
        filled += pieces.next().unwrap_or_default();
        for (piece, grid) in pieces.zip(self.grids(artifact, images)?) {
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
