//! Where predictions go, in order.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::files::Streamed;
use planish_data::chunks::ReadSample;
use planish_data::vectors::{VectorFile, VectorForm};
use serde::Serialize;
use serde_json::Value;

use super::outcome::Outcome;
use super::{Output, Unfit};

/// The form of a file of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// An object a line.
    Lines,
    /// Embeddings alone.
    Vectors(VectorForm),
}

impl OutputForm {
    /// That of a file's name.
    ///
    /// # Errors
    /// [`Unfit`] when its ending is that of no form; also when such a file cannot be written.
    pub fn of(path: &Path) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        match (ending.as_ref(), VectorForm::of(&ending)) {
            ("jsonl", _) => Ok(Self::Lines),
            (_, Some(form)) => form.check(path).map(|()| Self::Vectors(form)),
            _ => bail!(Unfit(format!(
                "-o {}: predictions are written as .jsonl, and embeddings also as .npy, .safetensors or .parquet",
                path.display()
            ))),
        }
    }
}

/// After so many bytes lines are passed on.
const LINES_BYTES: usize = 1 << 16;

/// A prediction as a line.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<usize>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// What takes predictions.
pub(super) enum Sink<'a> {
    /// Lines that were not passed on yet, and who takes them.
    Passed(Vec<u8>, &'a mut dyn FnMut(&str) -> Result<()>),
    /// A file that is not made yet.
    Unopened(PathBuf, OutputForm),
    /// A file of lines.
    Lines(BufWriter<Streamed>, String),
    /// A file of vectors.
    Vectors(Box<VectorFile>),
}

impl<'a> Sink<'a> {
    pub(super) fn new(output: Output<'a>) -> Self {
        match output {
            Output::Lines(take) => Self::Passed(Vec::new(), take),
            Output::File(path, form) => Self::Unopened(path.to_owned(), form),
        }
    }

    /// Writes what was predicted of the next text.
    pub(super) fn write(&mut self, text: &ReadSample, outcome: &Outcome) -> Result<()> {
        if let Self::Unopened(path, form) = self {
            *self = open(path, *form, outcome)?;
        }
        let line = Line { id: text.id.as_ref(), document: text.document, outcome };
        match self {
            Self::Passed(lines, _) => {
                serde_json::to_writer(&mut *lines, &line)?;
                lines.push(b'\n');
                if lines.len() < LINES_BYTES { Ok(()) } else { self.flush() }
            }
            Self::Lines(file, name) => {
                let context = || format!("cannot write {name}");
                serde_json::to_writer(&mut *file, &line).with_context(context)?;
                file.write_all(b"\n").with_context(context)
            }
            Self::Vectors(file) => {
                let Outcome::Embedding { embedding } = outcome else { bail!("there is no vector to write") };
                file.write(text.id.as_ref(), embedding)
            }
            Self::Unopened(..) => Ok(()),
        }
    }

    /// Passes on the lines that were written.
    pub(super) fn flush(&mut self) -> Result<()> {
        let Self::Passed(lines, take) = self else { return Ok(()) };
        let text = String::from_utf8(std::mem::take(lines))?;
        if text.is_empty() { Ok(()) } else { take(&text) }
    }

    /// Puts a file in its place.
    pub(super) fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self {
            Self::Passed(..) | Self::Unopened(..) => Ok(()),
            Self::Lines(file, name) => {
                let file = file.into_inner().map_err(std::io::IntoInnerError::into_error);
                file.with_context(|| format!("cannot write {name}"))?.place()
            }
            Self::Vectors(file) => file.finish(),
        }
    }
}

/// Makes a file; the first prediction says how many features its vectors have.
fn open<'a>(path: &Path, form: OutputForm, first: &Outcome) -> Result<Sink<'a>> {
    match (form, first) {
        (OutputForm::Lines, _) => Ok(Sink::Lines(BufWriter::new(Streamed::create(path)?), path.display().to_string())),
        (OutputForm::Vectors(form), Outcome::Embedding { embedding }) => {
            Ok(Sink::Vectors(Box::new(VectorFile::create(path, form, embedding.len())?)))
        }
        (OutputForm::Vectors(_), _) => bail!("there are no vectors to write to {}", path.display()),
    }
}
