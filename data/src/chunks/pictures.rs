//! Pictures and recordings in the order of their names, some at a time, for predictions. No more than a chunk is in memory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::chain::Chain;
use rayon::ThreadPoolBuilder;

use super::{Chunk, ChunkOptions, ReadPicture, ReadSample, SampleBatch};
use crate::media::{MediaInputs, Medium, PictureFiles, PictureSource, Pictures, Prepared, Read};
use crate::texts::TextFile;
use crate::{DataOptions, fixed_batch};

/// How many pictures a batch has where the model does not fix it.
const BATCH: usize = 8;

/// How many batches a chunk has.
const BATCHES: usize = 4;

/// What makes chunks of pictures.
pub(super) struct PictureChunks<'a> {
    from: From<'a>,
    chain: &'a Chain<'a>,
    folder: PathBuf,
    options: DataOptions,
    own: ChunkOptions,
}

/// The files, or the list that names them.
#[derive(Clone, Copy)]
pub(super) enum From<'a> {
    Files(&'a PictureFiles),
    List(&'a TextFile),
}

impl From<'_> {
    /// What the files are; not known of a list.
    fn medium(&self) -> Option<Medium> {
        if let Self::Files(files) = self { Some(files.medium) } else { None }
    }
}

impl<'a> PictureChunks<'a> {
    pub(super) fn new(
        from: From<'a>,
        chain: &'a Chain<'a>,
        folder: &Path,
        options: &DataOptions,
        own: ChunkOptions,
    ) -> Result<Self> {
        MediaInputs::new(&chain.inputs(), folder, from.medium())?;
        Ok(Self { from, chain, folder: folder.to_owned(), options: options.clone(), own })
    }

    /// Reads the pictures from the first one on and passes each chunk to `take`, until that says that it takes no more.
    ///
    /// # Errors
    /// When a picture cannot be read, or is not what the model takes.
    pub(super) fn read(&self, take: &mut dyn FnMut(Chunk) -> bool) -> Result<()> {
        let inputs = MediaInputs::new(&self.chain.inputs(), &self.folder, self.from.medium())?;
        let (source, files) = match self.from {
            From::Files(files) => (PictureSource::of(files, self.options.split), Some((files, self.options.split))),
            From::List(file) => (PictureSource::List(file.texts()?), None),
        };
        let pool = ThreadPoolBuilder::new().num_threads(self.own.threads.get()).build();
        let pool = pool.context("cannot start the threads that read files")?;
        let mut pictures = Pictures::new(source, files, inputs, &self.options).by(pool);
        let fixed = fixed_batch(&self.chain.inputs());
        let rows = fixed.unwrap_or(if self.own.one_picture { 1 } else { BATCH }).max(1);
        let mut first = 0;
        loop {
            let read = pictures.next(rows * BATCHES)?;
            let count = read.len();
            if count == 0 {
                return Ok(());
            }
            let place =
                || format!("cannot run on {} {} to {}", pictures.inputs().medium().plural(), first + 1, first + count);
            if !take(self.chunk(&pictures, first, read, rows, fixed.is_some()).with_context(place)?) {
                return Ok(());
            }
            first += count;
        }
    }

    /// Pictures next to each other that have one size are run together, and recordings that may fill each other up.
    fn chunk(&self, of: &Pictures<'_>, first: usize, read: Vec<Read>, rows: usize, is_fixed: bool) -> Result<Chunk> {
        let sample = |(picture, named): &Read| {
            let file = &named.file;
            let (is_cut, read) = match picture {
                Prepared::Picture(picture) => {
                    let size = picture.original();
                    (false, Some(ReadPicture { path: file.path.clone(), name: file.name.clone(), size }))
                }
                Prepared::Recording(recording) => (recording.is_cut, None),
            };
            ReadSample::of_file(named.id.clone(), is_cut, read)
        };
        let samples = read.iter().map(sample).collect();
        let mut batches = Vec::new();
        let mut at = 0;
        for same in read.chunk_by(|(one, _), (other, _)| of.inputs().fit_together(one, other)) {
            for batch in same.chunks(rows) {
                let mut pictures: Vec<_> = batch.iter().map(|(picture, _)| picture.clone()).collect();
                // A model of a fixed number of rows runs the last picture of a smaller batch again.
                if let Some((last, _)) = batch.last().filter(|_| is_fixed) {
                    pictures.resize(rows, last.clone());
                }
                let mut inputs = of.inputs().inputs(pictures)?;
                inputs.extend(self.own.beside.iter().cloned());
                self.chain.complete(&mut inputs)?;
                self.chain.check(&inputs, None)?;
                batches.push(SampleBatch { rows: (at..at + batch.len()).collect(), padded_tokens: 0, inputs });
                at += batch.len();
            }
        }
        Ok(Chunk { first, samples, batches })
    }
}
