//! What a decoder of vectors reads in place of token ids: the vectors of tokens and, at the places of images in prompts, those of images.

use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::manifest::PartManifest;
use planish_eval::Tensor;
use planish_ir::{InputRole, OutputRole, PartRole};
use planish_models::{ImagePlaces, PlacesForm};
use planish_runtimes::{RuntimeValue, Session};

use super::model::{Parts, matrix, output};
use super::places::{Grid, of_manifest};

/// What the prompt of a row sees.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// The first of its vectors of images, among all.
    first: usize,
    /// The first of its images, among all.
    image: usize,
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
    /// The input of the shapes of images, where they have any.
    grid: Option<String>,
    places: ImagePlaces,
    /// The input of the decoder that says which tokens see each other.
    types: Option<String>,
    /// What was seen for the next prompts, until these begin.
    next: Option<Images>,
    /// What was seen for the prompts that are read.
    seen: Option<Images>,
}

/// Images as the part that sees gives them.
struct Images {
    /// [places, hidden].
    vectors: Tensor,
    /// Frames, rows and columns of places of each image, where images have any shape.
    grids: Vec<Grid>,
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
        Ok(Some(Self {
            features: vision.given(OutputRole::Embeddings)?,
            axes: pixels.context("the part that sees takes no images")?.value.dims().len(),
            ids: embedder.named(InputRole::TokenIds)?,
            vectors: embedder.given(OutputRole::Embeddings)?,
            grid: vision.input_of(InputRole::PatchGrid).map(|input| input.value.name.clone()),
            places: of_manifest(parts.artifact)?,
            types,
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
        let given = |name: Option<&String>| inputs.iter().find(|(other, _)| Some(other) == name);
        let grid = given(self.grid.as_ref());
        let Some((name, pixels)) = inputs.iter().find(|(name, _)| Some(name) != self.grid.as_ref()) else {
            bail!("images have no pixels")
        };
        let Some((&count, of_one)) = pixels.shape().split_first() else { bail!("images are no tensor of several") };
        let bytes = pixels.to_bytes();
        let size = bytes.len() / count.max(1);
        let mut images = Vec::new();
        let mut grids = Vec::new();
        if let (Some((_, grid)), PlacesForm::Grid { merge }) = (grid, self.places.form) {
            // Shapes are integers far below 2^53.
            let sides: Vec<usize> = grid.to_f64().iter().map(|side| *side as usize).collect();
            for own in sides.as_chunks::<3>().0 {
                images.push((own.iter().product(), Some(own.map(whole))));
                grids.push([own[0], own[1] / merge, own[2] / merge]);
            }
        } else {
            images = vec![(1, None); count];
        }
        let (mut all, mut places, mut kind, mut from) = (Vec::new(), 0, None, 0);
        for (rows, sides) in images {
            let image =
                bytes.get(from * size..(from + rows) * size).context("images have fewer patches than their shapes")?;
            from += rows;
            let first = if sides.is_some() { vec![rows] } else { vec![1; self.axes.saturating_sub(of_one.len())] };
            let shape = first.into_iter().chain(of_one.iter().copied()).collect();
            let image = Tensor::from_bytes(pixels.dtype(), shape, image).context("an image has no pixels")?;
            let mut given: Vec<(&str, RuntimeValue)> = vec![(name, image.into())];
            if let (Some(name), Some(sides)) = (&self.grid, sides) {
                let sides = Tensor::new(vec![1, 3], sides.to_vec()).context("a shape has three numbers")?;
                given.push((name, sides.into()));
            }
            let given: Vec<(&str, &RuntimeValue)> = given.iter().map(|(name, value)| (*name, value)).collect();
            let mut outputs = self.vision.run_values(&given)?;
            let features = tensor(&output(&mut outputs, &self.features)?)?;
            let &[rows, hidden] = features.shape() else {
                bail!("`{}` is {:?}, and vectors of places were expected", self.features, features.shape())
            };
            places += rows;
            kind = Some((features.dtype(), hidden));
            all.extend(features.to_bytes());
        }
        let (dtype, hidden) = kind.context("there is no image")?;
        let vectors = Tensor::from_bytes(dtype, vec![places, hidden], &all);
        self.next = vectors.map(|vectors| Images { vectors, grids });
        Ok(())
    }

    /// What each of the next prompts sees of the images that were looked at for them: their places, in this order.
    ///
    /// # Errors
    /// When they have other places than there are vectors.
    pub(super) fn share(&mut self, prompts: &[Vec<i64>]) -> Result<Vec<Seen>> {
        self.seen = self.next.take();
        let have = self.check(prompts)?;
        let grids = self.seen.as_ref().map_or(&[][..], |seen| &seen.grids);
        let (mut first, mut image) = (0, 0);
        let seen = prompts.iter().map(|ids| {
            let places = self.places(ids);
            let own = Seen { first, image, prompt: ids.len(), has_images: have > 0 && places > 0 };
            first += places;
            let mut left = places;
            while left > 0 && image < grids.len() {
                left = left.saturating_sub(grids[image].iter().product());
                image += 1;
            }
            own
        });
        Ok(seen.collect())
    }

    /// The places of the images that are seen, which prompts have as many tokens for.
    ///
    /// # Errors
    /// When they have more or fewer.
    pub(super) fn check(&self, prompts: &[Vec<i64>]) -> Result<usize> {
        let have = self.seen.as_ref().map_or(0, |seen| seen.vectors.shape()[0]);
        let places: usize = prompts.iter().map(|ids| self.places(ids)).sum();
        if places != have {
            bail!(
                "the prompts have {places} tokens that stand for places of images (id {}), and the images have {have} places",
                self.places.token
            );
        }
        Ok(have)
    }

    /// How many tokens stand for a place.
    fn places(&self, ids: &[i64]) -> usize {
        ids.iter().filter(|id| **id == self.places.token).count()
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
            |(ids, _, seen): &Row<'_>, at: usize| at < seen.prompt && seen.has_images && ids[at] == self.places.token;
        let has_places = rows.iter().any(|row| Self::tokens(columns, *row).any(|(_, at)| is_place(row, at)));
        let Some(Images { vectors: seen, .. }) = self.seen.as_ref().filter(|_| has_places) else { return Ok(vectors) };
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

    /// The positions of the tokens of columns, [3, rows, columns], where they have three coordinates.
    pub(super) fn positions(&self, rows: &[Row<'_>], columns: &Range<usize>) -> Option<Result<RuntimeValue>> {
        let PlacesForm::Grid { .. } = self.places.form else { return None };
        let mut positions = vec![0; 3 * rows.len() * columns.len()];
        for (number, row) in rows.iter().enumerate() {
            let (ids, _, seen) = row;
            let grids =
                self.seen.as_ref().filter(|_| seen.has_images).map_or(&[][..], |images| &images.grids[seen.image..]);
            let of_tokens = coordinates(ids, |at| at < seen.prompt && ids[at] == self.places.token, grids);
            for (column, at) in Self::tokens(columns, *row) {
                for (axis, position) in of_tokens[at].into_iter().enumerate() {
                    positions[(axis * rows.len() + number) * columns.len() + column - columns.start] = position;
                }
            }
        }
        let tensor = Tensor::new(vec![3, rows.len(), columns.len()], positions);
        Some(tensor.map(RuntimeValue::from).context("positions have another size than their tensor"))
    }

    /// The types of the tokens of columns, where the decoder takes them, and the name of the input.
    pub(super) fn types(&self, rows: &[Row<'_>], columns: &Range<usize>) -> Result<Option<(&String, RuntimeValue)>> {
        let Some(name) = &self.types else { return Ok(None) };
        let mut types = vec![0; rows.len() * columns.len()];
        for (number, row) in rows.iter().enumerate() {
            let (ids, _, seen) = row;
            for (column, at) in Self::tokens(columns, *row) {
                let of_prompt = at < seen.prompt;
                types[number * columns.len() + column - columns.start] = i64::from(match self.places.form {
                    PlacesForm::First => !of_prompt,
                    _ => of_prompt && seen.has_images && ids[at] == self.places.token,
                });
            }
        }
        Ok(Some((name, matrix(rows.len(), types)?)))
    }
}

/// Positions of the tokens of a text with images of some shapes: those of a frame, of a row and of a column, as `get_rope_index` of the
/// transformers library has them. A token after an image has the position after the largest of it.
fn coordinates(ids: &[i64], is_place: impl Fn(usize) -> bool, mut grids: &[Grid]) -> Vec<[i64; 3]> {
    let mut all: Vec<[i64; 3]> = Vec::with_capacity(ids.len());
    let mut next = 0;
    while all.len() < ids.len() {
        let image = grids.split_first().filter(|_| is_place(all.len()));
        let Some((&[frames, rows, columns], others)) = image else {
            all.push([next; 3]);
            next += 1;
            continue;
        };
        grids = others;
        let places = (0..frames * rows * columns).take(ids.len() - all.len());
        all.extend(places.map(|at| {
            [at / (rows * columns), at / columns % rows, at % columns].map(|coordinate| next + whole(coordinate))
        }));
        next += whole(rows.max(columns));
    }
    all
}

/// A size as an element of a tensor: sizes of images are far below 2^63.
fn whole(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn tensor(value: &RuntimeValue) -> Result<Tensor> {
    value.to_tensor().ok_or_else(|| anyhow!("vectors cannot be read from the runtime"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `get_rope_index` of transformers 5.24 has them.
    #[test]
    fn images_have_positions_of_rows_and_columns() {
        let ids = [1, 9, 9, 9, 9, 9, 9, 2, 9, 3, 9];
        let is_place = |at: usize| at < 9 && ids[at] == 9;
        let found = coordinates(&ids, is_place, &[[1, 2, 3], [1, 1, 1]]);
        let image = [[1, 1, 1], [1, 1, 2], [1, 1, 3], [1, 2, 1], [1, 2, 2], [1, 2, 3]];
        let rest = [[4; 3], [5; 3], [6; 3], [7; 3]];
        assert_eq!(found, [&[[0; 3]][..], &image, &rest].concat());
        assert_eq!(coordinates(&[5, 6], |_| false, &[]), [[0; 3], [1; 3]]);
    }
}
