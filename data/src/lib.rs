//! Data sets that a model is run on, as a stream of batches of its inputs: texts, which the
//! checkpoint's tokenizer reads, pictures and recordings, which its processor reads, or tensors by the names of the inputs.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

mod arrays;
mod batches;
mod checks;
pub mod chunks;
mod compared;
mod described;
pub mod inputs;
mod media;
mod npy;
mod options;
mod pieces;
pub mod sentence;
mod shard;
mod shards;
mod tensors;
mod texts;
pub mod tokenizer;
mod tokens;
pub mod vectors;
mod written;

use std::borrow::Cow;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::chain::Chain;
use planish_artifact::evaluation::Unit;
use planish_artifact::manifest::{Input, Manifest};
use planish_artifact::split::Split;
use planish_models::{Loaded, Task};

use crate::inputs::Sampling;
use arrays::Arrays;
use batches::Reader;
pub use batches::{Batch, Batches, RowInfo};
pub use compared::ComparedTexts;
pub use described::described;
use media::{MediaInputs, Medium, PictureFiles, PictureSource, Pictures, no_texts};
pub use media::{NamedInputs, PictureInputs, SoundInputs, Spoken, media_inputs};
pub use options::{DataOptions, IdField, OptionNames, SAMPLES};
pub use pieces::Span;
pub use planish_pictures::{
    FILES as PICTURE_SETTINGS, Filter, InGraph, Processor, ResizedTo, fit as fit_pictures, is_picture,
};
pub use planish_sounds::{
    BandForm as SoundBandForm, FILES as SOUND_SETTINGS, InGraph as SoundsInGraph, Processor as SoundProcessor,
    is_recording,
};
pub use shard::{Shard, ShardError};
pub use shards::{Shards, ShardsError, differences};
use tensors::TensorFiles;
pub use tensors::{is_tensors, read_inputs};
pub use texts::Label;
pub use texts::{Kind, Text, TextFile, count, fields_of};
use tokens::Tokens;
pub use written::Writing;

/// How many samples a batch has unless told otherwise.
const BATCH: usize = 8;

/// What of a model decides how it reads texts.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextModel {
    /// Its task.
    pub task: Option<Task>,
    /// The longest sequence, in tokens; absent where it has no limit.
    pub longest: Option<usize>,
    /// The id of padding.
    pub pad: Option<i64>,
}

impl From<&Loaded> for TextModel {
    fn from(model: &Loaded) -> Self {
        Self { task: model.task, longest: model.max_positions, pad: model.pad_token_id }
    }
}

impl From<&Manifest> for TextModel {
    fn from(model: &Manifest) -> Self {
        Self { task: model.task, longest: model.max_sequence_length, pad: model.pad_token_id }
    }
}

/// Whether a path is a picture or a recording, a folder of such files, or a folder of folders of these.
///
/// # Errors
/// When a folder cannot be read, or has both such files and folders of them.
pub fn is_of_media(path: &Path) -> Result<bool> {
    Ok(PictureFiles::find(path, 1)?.is_some())
}

/// Whether texts of a file, by its ending, are members or columns with a name.
pub fn has_fields(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    !matches!(Kind::of(&ending), None | Some(Kind::Lines))
}

/// Opens a data set and reads its first record.
///
/// # Errors
/// When that is impossible, or the options are not for such data.
pub fn check(path: &Path, options: &DataOptions) -> Result<()> {
    Dataset::open(path, options).map(drop)
}

/// A data set, the samples that are taken of it.
pub struct Dataset {
    path: PathBuf,
    split: Split,
    content: Content,
}

enum Content {
    /// Read while they are run.
    Texts(TextFile),
    /// Read once it is known what a sample of them is.
    Tensors(TensorFiles),
    /// Read while they are run.
    Pictures(PictureFiles),
}

impl Dataset {
    /// Opens a file by its ending: a text a line of `.txt`, a member of an object a line of `.jsonl`, a column of
    /// `.csv` and `.parquet`, tensors in `.npz` and `.safetensors`; or a folder of files of tensors; a picture, a
    /// folder of pictures, or a folder of such folders, whose names are labels. What a sample of tensors is depends on the model:
    /// see [`Sampling`].
    ///
    /// # Errors
    /// When it cannot be read, is not what it should be, or has no sample; also when an option is
    /// given that such a file has no use for.
    pub fn open(path: &Path, options: &DataOptions) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(pictures) = PictureFiles::find(path, options.samples.get())? {
            return Self::of_pictures(path, pictures, options);
        }
        let tensors = is_tensors(path);
        let kind = if tensors { None } else { Kind::of(&ending) };
        let field = options.names.field.unwrap_or("the name of a text");
        let has_id = matches!(options.id, Some(IdField::Named(_)));
        let named =
            [(options.field.is_some(), field), (options.label.is_some() && !tensors, "--label"), (has_id, "--id")];
        if let Some((_, option)) = named.iter().find(|(is_given, _)| *is_given).filter(|_| !has_fields(path)) {
            bail!("{option} is for .jsonl, .csv and .parquet files; {} is not one", path.display());
        }
        if tensors && options.max_length.is_some() {
            bail!("--max-length is for texts; {} contains tensors", path.display());
        }
        if tensors && options.unit == Some(Unit::Documents) {
            bail!("--documents is for texts; {} contains tensors", path.display());
        }
        if tensors && options.skip_bad {
            bail!("--skip-bad is for texts; {} contains tensors", path.display());
        }
        let split = options.split;
        let content = match kind {
            Some(kind) => {
                let file = TextFile::new(path, kind, options)?;
                // Errors of the first record come before the model is loaded.
                file.texts()?.next().transpose()?.with_context(|| too_few(path))?;
                Content::Texts(file)
            }
            None if tensors => Content::Tensors(TensorFiles::open(path, options.samples.get())?),
            None if fs::metadata(path).is_ok_and(|of| !of.is_file()) => bail!(
                "{} is not a regular file: data is read more than once, and the ending of its name says what it is; write it to a \
                 file first, such as data.jsonl",
                path.display()
            ),
            None => bail!(
                "{} is not a data set: expected .txt (a text a line), .jsonl (an object a line), .csv or .parquet (texts \
                 in a column), .npz or .safetensors (tensors by the names of inputs), a picture or a recording ({}), or a folder of \
                 tensors, pictures or recordings",
                path.display(),
                media::endings().join(", ")
            ),
        };
        Ok(Self { path: path.to_owned(), split, content })
    }

    /// The samples as batches of a model's inputs; `folder` has its tokenizer, or the settings of its image processor.
    ///
    /// # Errors
    /// When the model does not take such data, or there is no file that texts or pictures need.
    pub fn batches<'a>(
        &'a self,
        chain: &'a Chain<'a>,
        model: &'a Loaded,
        folder: &Path,
        options: &DataOptions,
    ) -> Result<Batches<'a>> {
        let wanted = chain.inputs();
        let pictures = |source, files: Option<(&PictureFiles, Split)>| -> Result<Reader<'a>> {
            let given = files.map(|(files, _)| files.medium);
            let inputs = MediaInputs::new(&wanted, folder, given).with_context(|| self.unusable())?;
            Ok(Reader::Pictures(Box::new(Pictures::new(source, files, inputs, options))))
        };
        let reader = match &self.content {
            Content::Pictures(files) => pictures(PictureSource::of(files, self.split), Some((files, self.split)))?,
            Content::Texts(file) if let Some(medium) = Medium::taken(&wanted) => {
                no_texts(&self.path, medium, options)?;
                pictures(PictureSource::List(file.texts()?), None)?
            }
            Content::Texts(file) => {
                let tokens = Tokens::new(&wanted, model.into(), folder, options).with_context(|| self.unusable())?;
                Reader::Texts(file.texts()?, Box::new(tokens))
            }
            Content::Tensors(files) => self.tensors(files, &wanted, options)?,
        };
        // Without a mask, padding would be text.
        let one = match &reader {
            Reader::Texts(_, tokens) => !tokens.masked(),
            Reader::Pictures(pictures) => pictures.inputs().takes_one(),
            Reader::Rows(_) | Reader::Files(_) => false,
        };
        let batch = options.batch.map(NonZeroUsize::get).or(fixed_batch(&wanted));
        let batch = match reader {
            Reader::Files(_) => 1,
            _ => batch.unwrap_or(if one { 1 } else { BATCH }),
        };
        let longest = model.max_positions.filter(|_| !options.is_windowed);
        let inputs = wanted.iter().map(|(name, input)| (name.as_ref(), *input));
        let writing = match &reader {
            Reader::Pictures(_) if options.own_text => Writing::of(inputs, model, folder)?,
            _ => None,
        };
        Ok(Batches::new(self, reader, (wanted, chain, longest), batch, options).written(writing))
    }

    /// The samples of tensors for a model that takes these inputs.
    fn tensors<'a>(
        &self,
        data: &TensorFiles,
        wanted: &[(Cow<'_, str>, &Input)],
        options: &DataOptions,
    ) -> Result<Reader<'a>> {
        let path = self.path.as_path();
        let (reader, all) = match Sampling::of(wanted) {
            Sampling::FirstAxis => {
                if data.is_folder {
                    bail!(
                        "{} is a folder, and the inputs of this model have their first dimension in common: give one file whose \
                         first axis counts the samples; the inputs are {}",
                        path.display(),
                        listed(wanted)
                    );
                }
                let expected = || format!("the inputs are {}", listed(wanted));
                let arrays = Arrays::new(path, tensors::read(path, options.samples.get())?, &expected)?;
                let all = arrays.samples();
                (Reader::Rows(arrays.of(self.split)), all)
            }
            Sampling::Files => {
                if let Some(batch) = options.batch.filter(|batch| batch.get() > 1) {
                    bail!(
                        "--batch {batch} is for inputs with their first dimension in common; a file has the inputs of one run: {}",
                        listed(wanted)
                    );
                }
                let taken = data.files.iter().enumerate().filter(|(at, _)| self.split.has(*at));
                (Reader::Files(taken.map(|(_, file)| file.clone()).collect()), data.files.len())
            }
        };
        // Both parts of a data set have samples, or neither is of use.
        if !self.split.is_all() && Split::HeldOut.is_empty_of(all) {
            bail!(too_few(path));
        }
        Ok(reader)
    }

    fn unusable(&self) -> String {
        format!("cannot run on {}{}", self.path.display(), self.split)
    }
}

/// The error on a data set that is too small to be divided.
fn too_few(path: &Path) -> String {
    format!(
        "{} has fewer than 5 samples, of which every fifth is to be held out; take more data, or name other data with --evaluate",
        path.display()
    )
}

/// Inputs with their types.
fn listed(wanted: &[(Cow<'_, str>, &Input)]) -> String {
    let port = |(name, input): &(Cow<'_, str>, &Input)| format!("{name}: {}", input.value.ty);
    wanted.iter().map(port).collect::<Vec<_>>().join(", ")
}

/// The number of rows that the model fixes.
fn fixed_batch(wanted: &[(Cow<'_, str>, &Input)]) -> Option<usize> {
    wanted.iter().filter_map(|(_, input)| usize::try_from(input.value.dims().first()?.as_constant()?).ok()).next()
}

#[cfg(test)]
mod tests;
