//! Pictures and recordings: files that are named, or found in folders, as samples.

mod dataset;
mod files;
mod medium;
mod pictures;
mod port;
mod recordings;
mod spoken;

use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use planish_artifact::chain::Chain;
use planish_artifact::evaluation::Coverage;
use planish_artifact::split::Split;
use planish_eval::Tensor;
use rayon::ThreadPool;
use rayon::prelude::*;
use serde_json::Value;

use super::texts::{Label, Text, Texts};
use super::{DataOptions, OptionNames};
pub(crate) use dataset::no_texts;
pub(crate) use files::{PictureFile, PictureFiles};
pub(crate) use medium::{MediaInputs, Medium, Prepared, endings};
pub use pictures::PictureInputs;
pub use recordings::SoundInputs;
pub use spoken::Spoken;

/// A picture or a recording that is to be read.
pub(crate) struct Named {
    pub(crate) file: PictureFile,
    pub(crate) label: Option<Label>,
    /// What its record is called; its name where it has none.
    pub(crate) id: Value,
}

/// Where pictures come from, one after the other.
pub(crate) enum PictureSource<'a> {
    /// Files, and the split of them that is taken.
    Files(Box<dyn Iterator<Item = PictureFile> + 'a>),
    /// A list, whose texts are paths that begin at its folder.
    List(Texts<'a>),
}

impl<'a> PictureSource<'a> {
    /// The files of a split.
    pub(crate) fn of(files: &'a PictureFiles, split: Split) -> Self {
        let taken = files.files.iter().enumerate().filter(move |(at, _)| split.has(*at));
        Self::Files(Box::new(taken.map(|(_, file)| file.clone())))
    }

    /// The next ones, so many at most.
    pub(crate) fn next(&mut self, count: usize) -> Result<Vec<Named>> {
        let named = |file: PictureFile| {
            let (label, id) = (file.label.clone().map(Label::Name), file.name.clone().into());
            Named { file, label, id }
        };
        match self {
            Self::Files(files) => Ok(files.take(count).map(named).collect()),
            Self::List(texts) => {
                let folder = texts.path().parent().unwrap_or(Path::new("")).to_owned();
                let mut all = Vec::new();
                while all.len() < count {
                    let Some(sample) = texts.next().transpose()? else { break };
                    let list = texts.path().display();
                    let Text::One(name) = sample.text else {
                        bail!(
                            "a record of {list} has two texts, and a picture or recording is one file; name one member with --field"
                        )
                    };
                    if name.trim().is_empty() {
                        bail!("a record of {list} has no path of a file; remove it");
                    }
                    let file = PictureFile { path: folder.join(name.trim()), name, label: None };
                    let id = sample.id.unwrap_or_else(|| file.name.clone().into());
                    all.push(Named { label: sample.label, id, file });
                }
                Ok(all)
            }
        }
    }

    /// Adds what is left out of a list, which is read on for that.
    fn cover(&mut self, coverage: &mut Coverage) {
        if let Self::List(texts) = self {
            coverage.has_more = !texts.after(|_, _| coverage.behind_samples.add(0));
            coverage.of_split.texts = texts.of_split().texts;
            coverage.bad += texts.skipped() as u64;
        }
    }

    /// The error on a file that cannot be read, with what to do.
    fn bad(&self, error: Error, medium: Medium, names: OptionNames) -> Error {
        let remedy = match names.skip_bad {
            Some(option) => format!("{option} leaves such {} out", medium.plural()),
            None => "replace it, or leave it out".to_owned(),
        };
        let of_list = match self {
            Self::List(texts) => format!(" of the list {}", texts.path().display()),
            Self::Files(_) => String::new(),
        };
        error.context(format!("a {}{of_list} cannot be read; {remedy}", medium.singular()))
    }
}

/// Pictures as they are read, with what becomes of damaged ones.
pub(crate) struct Pictures<'a> {
    source: PictureSource<'a>,
    inputs: MediaInputs,
    coverage: Coverage,
    skips: bool,
    names: OptionNames,
    pool: Option<ThreadPool>,
}

/// A picture that was read, and its label.
pub(crate) type Read = (Prepared, Named);

impl<'a> Pictures<'a> {
    /// Of files as many as there are with those that are not taken; nothing is known of a list.
    pub(crate) fn new(
        source: PictureSource<'a>,
        files: Option<(&PictureFiles, Split)>,
        inputs: MediaInputs,
        options: &DataOptions,
    ) -> Self {
        let mut coverage = Coverage::new(inputs.medium().unit());
        if let Some((PictureFiles { files, all, .. }, split)) = files {
            coverage.behind_samples.texts = (all - files.len()) as u64;
            coverage.of_split.texts = (0..files.len()).filter(|at| !split.has(*at)).count() as u64;
        }
        Self { source, inputs, coverage, skips: options.skip_bad, names: options.names, pool: None }
    }

    /// The same, read by these threads.
    pub(crate) fn by(self, pool: ThreadPool) -> Self {
        Self { pool: Some(pool), ..self }
    }

    /// What makes inputs of them.
    pub(crate) fn inputs(&self) -> &MediaInputs {
        &self.inputs
    }

    /// The next pictures, so many at most; fewer are the last ones. Threads read them side by side.
    ///
    /// # Errors
    /// When one is damaged and such ones are not left out, or all are damaged.
    pub(crate) fn next(&mut self, count: usize) -> Result<Vec<Read>> {
        let mut all = Vec::new();
        while all.len() < count {
            let wanted = count - all.len();
            let named = self.source.next(wanted)?;
            let is_last = named.len() < wanted;
            let inputs = &self.inputs;
            let one = |named: Named| inputs.read(&named.file.path).map(|picture| (picture, named));
            let read = || named.into_par_iter().map(one).collect::<Vec<Result<Read>>>();
            let read = if let Some(pool) = &self.pool { pool.install(read) } else { read() };
            for picture in read {
                match picture {
                    Ok(picture) => all.push(picture),
                    Err(_) if self.skips => self.coverage.bad += 1,
                    Err(error) => return Err(self.bad(error)),
                }
            }
            if is_last {
                break;
            }
        }
        self.coverage.texts += all.len() as u64;
        if self.coverage.texts == 0 && self.coverage.bad > 0 {
            let one = self.inputs.medium().singular();
            bail!("no {one} can be read: all of the {} are bad", self.coverage.bad);
        }
        Ok(all)
    }

    fn bad(&self, error: Error) -> Error {
        self.source.bad(error, self.inputs.medium(), self.names)
    }

    /// How many pictures, and records of a list, were left out so far.
    pub(crate) fn skipped(&self) -> usize {
        let of_list = if let PictureSource::List(texts) = &self.source { texts.skipped() } else { 0 };
        usize::try_from(self.coverage.bad).unwrap_or(usize::MAX).saturating_add(of_list)
    }

    /// How much was taken. Reads a list on, to count what was left out.
    pub(crate) fn coverage(&mut self) -> Coverage {
        let mut coverage = self.coverage;
        self.source.cover(&mut coverage);
        coverage
    }
}

/// The inputs of one run by their names, and the names of the pictures or recordings that they are of.
pub type NamedInputs = (Vec<(String, Tensor)>, Vec<String>);

/// All pictures or recordings of a file or a folder as the inputs of one run, in the order of their names, with these names.
///
/// # Errors
/// When there is none, one cannot be read, or they are not what the model takes.
pub fn media_inputs(path: &Path, chain: &Chain<'_>, folder: &Path) -> Result<NamedInputs> {
    let files = PictureFiles::find(path, usize::MAX)?;
    let files = files.with_context(|| {
        let [pictures, recordings] = endings();
        format!("{} has no picture ({pictures}) and no recording ({recordings})", path.display())
    })?;
    let inputs = MediaInputs::new(&chain.inputs(), folder, Some(files.medium))?;
    let options = DataOptions { names: OptionNames::NONE, ..DataOptions::default() };
    let mut pictures =
        Pictures::new(PictureSource::of(&files, Split::All), Some((&files, Split::All)), inputs, &options);
    let (read, named): (Vec<Prepared>, Vec<Named>) = pictures.next(files.all)?.into_iter().unzip();
    Ok((pictures.inputs().inputs(read)?, named.into_iter().map(|named| named.file.name).collect()))
}
