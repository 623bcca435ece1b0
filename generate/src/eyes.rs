//! What a decoder of vectors reads in place of token ids: the vectors of tokens and, at the places of images in prompts, those of images.

use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::manifest::PartManifest;
use planish_eval::Tensor;
use planish_ir::{InputRole, OutputRole, PartRole};
use planish_runtimes::{RuntimeValue, Session};

use super::model::{Parts, matrix, output};
use super::places::{Seen as SeenTogether, image_token, together};

/// What the prompt of a row sees.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// The first of its vectors of images, among all.
    first: usize,
    /// The tokens of the prompt: those after them stand for no place.
    pub(super) prompt: usize,
    /// Whether it has places of images.
    has_images: bool,
}

/// A row of tokens: its ids, the columns of padding before them, and what its prompt sees.
pub(super) type Row<'a> = (&'a [i64], usize, Seen);

/// The parts of a model that make vectors.
pub(super) struct Eyes {
    vision: Box<dyn Session>,
    /// The name of what it gives, and how many axes its images have.
    features: String,
    axes: usize,
    embedder: Box<dyn Session>,
    ids: String,
    vectors: String,
    /// The id of a token that stands for a place of an image.
    token: i64,
    /// The input of the decoder that says which tokens see each other, and which those are.
    types: Option<(String, SeenTogether)>,
    /// The vectors of the images of the next prompts, [places, hidden], until these begin.
    next: Option<Tensor>,
    /// Those of the prompts that are read.
    seen: Option<Tensor>,
}

impl Eyes {
    /// Loads the parts of an artifact before its decoder; absent where the decoder reads token ids.
    pub(super) fn load(parts: &Parts<'_>, decoder: &PartManifest) -> Result<Option<Self>> {
        if decoder.input_of(InputRole::Embeddings).is_none() {
            return Ok(None);
        }
        let [vision, embedder] = [parts.part(PartRole::VisionEncoder)?, parts.part(PartRole::Embedder)?];
        let pixels = vision.input_of(InputRole::Pixels).or_else(|| vision.input_of(InputRole::Image));
        let types = decoder.input_of(InputRole::TokenTypes).map(|input| input.value.name.clone());
        if types.is_some() && parts.loading.prompt_chunk.is_some() {
            bail!(
                "--set prefill_chunk_size cuts prompts, and tokens of this model see those after them, which one run has to read; leave it out"
            );
        }
        let folder = &parts.artifact.folder;
        Ok(Some(Self {
            features: vision.given(OutputRole::Embeddings)?,
            axes: pixels.context("the part that sees takes no images")?.value.dims().len(),
            ids: embedder.named(InputRole::TokenIds)?,
            vectors: embedder.given(OutputRole::Embeddings)?,
            token: image_token(folder)?,
            types: types.map(|name| Ok::<_, anyhow::Error>((name, together(folder)?))).transpose()?,
            vision: parts.session(vision)?,
            embedder: parts.session(embedder)?,
            next: None,
            seen: None,
        }))
    }

    /// Whether the tokens of a prompt see those after them, so that one run reads all of them.
    pub(super) fn reads_whole_prompts(&self) -> bool {
        self.types.is_some()
    }

    /// Looks at the images of the next prompts, one after the other, so that memory does not depend on how many there are.
    pub(super) fn see(&mut self, inputs: &[(String, Tensor)]) -> Result<()> {
        let [(name, pixels)] = inputs else { bail!("images are one tensor, and {} are given", inputs.len()) };
        let Some((&count, of_one)) = pixels.shape().split_first() else { bail!("images are no tensor of several") };
        let bytes = pixels.to_bytes();
        let size = bytes.len() / count.max(1);
        let mut shape = vec![1; self.axes.saturating_sub(of_one.len())];
        shape.extend(of_one);
        let (mut all, mut places, mut kind) = (Vec::new(), 0, None);
        for image in bytes.chunks_exact(size.max(1)) {
            let image = Tensor::from_bytes(pixels.dtype(), shape.clone(), image).context("an image has no pixels")?;
            let mut outputs = self.vision.run_values(&[(name, &image.into())])?;
            let features = tensor(&output(&mut outputs, &self.features)?)?;
            let &[rows, hidden] = features.shape() else {
                bail!("`{}` is {:?}, and vectors of places were expected", self.features, features.shape())
            };
            places += rows;
            kind = Some((features.dtype(), hidden));
            all.extend(features.to_bytes());
        }
        let (dtype, hidden) = kind.context("there is no image")?;
        self.next = Tensor::from_bytes(dtype, vec![places, hidden], &all);
        Ok(())
    }

    /// What each of the next prompts sees of the images that were looked at for them: their places, in this order.
    ///
    /// # Errors
    /// When they have other places than there are vectors.
    pub(super) fn share(&mut self, prompts: &[Vec<i64>]) -> Result<Vec<Seen>> {
        self.seen = self.next.take();
        let have = self.check(prompts)?;
        let mut first = 0;
        let seen = prompts.iter().map(|ids| {
            let places = self.places(ids);
            let own = Seen { first, prompt: ids.len(), has_images: have > 0 && places > 0 };
            first += places;
            own
        });
        Ok(seen.collect())
    }

    /// The places of the images that are seen, which prompts have as many tokens for.
    ///
    /// # Errors
    /// When they have more or fewer.
    pub(super) fn check(&self, prompts: &[Vec<i64>]) -> Result<usize> {
        let have = self.seen.as_ref().map_or(0, |seen| seen.shape()[0]);
        let places: usize = prompts.iter().map(|ids| self.places(ids)).sum();
        if places != have {
            bail!(
                "the prompts have {places} tokens that stand for places of images (id {}), and the images have {have} places",
                self.token
            );
        }
        Ok(have)
    }

    /// How many tokens stand for a place.
    fn places(&self, ids: &[i64]) -> usize {
        ids.iter().filter(|id| **id == self.token).count()
    }

    /// The columns of a row that have tokens, within some, with the index of each in the row.
    fn tokens(columns: &Range<usize>, (ids, padding, _): Row<'_>) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (padding, end) = (padding, padding + ids.len());
        columns
            .clone()
            .filter(move |column| (padding..end).contains(column))
            .map(move |column| (column, column - padding))
    }

    /// The vectors of columns of rows, of which `ids` are the tokens: [rows, columns, hidden].
    pub(super) fn vectors(
        &mut self,
        ids: RuntimeValue,
        rows: &[Row<'_>],
        columns: &Range<usize>,
    ) -> Result<RuntimeValue> {
        let mut outputs = self.embedder.run_values(&[(&self.ids, &ids)])?;
        let vectors = output(&mut outputs, &self.vectors)?;
        let is_place =
            |(ids, _, seen): &Row<'_>, at: usize| at < seen.prompt && seen.has_images && ids[at] == self.token;
        let has_places = rows.iter().any(|row| Self::tokens(columns, *row).any(|(_, at)| is_place(row, at)));
        let Some(seen) = self.seen.as_ref().filter(|_| has_places) else { return Ok(vectors) };
        let vectors = tensor(&vectors)?;
        let &[_, width, hidden] = vectors.shape() else { bail!("vectors of tokens have no three axes") };
        if seen.shape().get(1) != Some(&hidden) {
            bail!("vectors of images are {:?}, and those of tokens have {hidden} features", seen.shape());
        }
        let seen = match seen.dtype() == vectors.dtype() {
            true => seen.to_bytes(),
            false => {
                let converted = Tensor::from_f64(vectors.dtype(), seen.shape().to_vec(), &seen.to_f64());
                converted.context("vectors of images are no numbers")?.to_bytes()
            }
        };
        let size = hidden * vectors.dtype().size();
        let mut bytes = vectors.to_bytes();
        for (number, row) in rows.iter().enumerate() {
            let (ids, _, own) = row;
            for (column, at) in Self::tokens(columns, *row).filter(|(_, at)| is_place(row, *at)) {
                let before = self.places(&ids[..at]);
                let to = (number * width + column - columns.start) * size;
                let from = (own.first + before) * size;
                bytes[to..to + size].copy_from_slice(&seen[from..from + size]);
            }
        }
        let placed = Tensor::from_bytes(vectors.dtype(), vectors.shape().to_vec(), &bytes);
        Ok(placed.context("vectors have another size than their tensor")?.into())
    }

    /// The types of the tokens of columns, where the decoder takes them, and the name of the input.
    pub(super) fn types(&self, rows: &[Row<'_>], columns: &Range<usize>) -> Result<Option<(&String, RuntimeValue)>> {
        let Some((name, together)) = &self.types else { return Ok(None) };
        let mut types = vec![0; rows.len() * columns.len()];
        for (number, row) in rows.iter().enumerate() {
            let (ids, _, seen) = row;
            for (column, at) in Self::tokens(columns, *row) {
                let of_prompt = at < seen.prompt;
                types[number * columns.len() + column - columns.start] = i64::from(match together {
                    SeenTogether::Images => of_prompt && seen.has_images && ids[at] == self.token,
                    SeenTogether::Prompt => !of_prompt,
                });
            }
        }
        Ok(Some((name, matrix(rows.len(), types)?)))
    }
}

fn tensor(value: &RuntimeValue) -> Result<Tensor> {
    value.to_tensor().ok_or_else(|| anyhow!("vectors cannot be read from the runtime"))
}
