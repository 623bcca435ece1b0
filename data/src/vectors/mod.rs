//! Files of vectors, which are written while the vectors are computed.

mod matrix;
#[cfg(feature = "parquet")]
mod table;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::Value;

use matrix::{Matrix, MatrixForm};
#[cfg(feature = "parquet")]
use table::Table;

/// The form of a file of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorForm {
    /// NumPy's: float32 [rows, features].
    Npy,
    /// A tensor `embeddings`: float32 [rows, features].
    Safetensors,
    /// The columns `id` and `embedding`, which is a list of float32.
    Parquet,
}

impl VectorForm {
    /// That of a file's ending.
    #[must_use]
    pub fn of(ending: &str) -> Option<Self> {
        match ending {
            "npy" => Some(Self::Npy),
            "safetensors" => Some(Self::Safetensors),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }

    /// Checks that this planish writes the form, and to such a path.
    ///
    /// # Errors
    /// When it was built without it, or the path is a pipe and the file has a part that is written last and read first.
    pub fn check(self, path: &Path) -> Result<()> {
        if self == Self::Parquet && cfg!(not(feature = "parquet")) {
            bail!(
                "this planish was built without Parquet; build it with the feature `parquet`, or write .npy or .jsonl"
            );
        }
        let is_pipe = || std::fs::metadata(path).is_ok_and(|of| of.file_type().is_fifo() || of.file_type().is_socket());
        if self != Self::Parquet && is_pipe() {
            bail!("{}", only_to_files(path));
        }
        Ok(())
    }
}

/// The error on a pipe.
fn only_to_files(path: &Path) -> String {
    format!(
        "cannot write {}: its first bytes are written last, and it is a pipe; write .jsonl or .parquet",
        path.display()
    )
}

/// A file of vectors. It takes its place when it is finished.
pub struct VectorFile(Form);

enum Form {
    Matrix(Matrix),
    #[cfg(feature = "parquet")]
    Table(Box<Table>),
}

impl VectorFile {
    /// Begins to write vectors of so many features.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn create(path: &Path, form: VectorForm, features: usize) -> Result<Self> {
        form.check(path)?;
        let matrix = |form| Ok(Self(Form::Matrix(Matrix::create(path, form, features)?)));
        match form {
            VectorForm::Npy => matrix(MatrixForm::Npy),
            VectorForm::Safetensors => matrix(MatrixForm::Safetensors),
            #[cfg(feature = "parquet")]
            VectorForm::Parquet => Ok(Self(Form::Table(Box::new(Table::create(path, features)?)))),
            #[cfg(not(feature = "parquet"))]
            VectorForm::Parquet => bail!("this planish was built without Parquet"),
        }
    }

    /// Writes the next vector, and in Parquet what its record is called.
    ///
    /// # Errors
    /// When it has another number of features, or cannot be written.
    pub fn write(&mut self, id: Option<&Value>, vector: &[f32]) -> Result<()> {
        match &mut self.0 {
            Form::Matrix(matrix) => matrix.write(vector),
            #[cfg(feature = "parquet")]
            Form::Table(table) => table.write(id, vector),
        }
    }

    /// Writes what is left, and puts the file in its place.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn finish(self) -> Result<()> {
        match self.0 {
            Form::Matrix(matrix) => matrix.finish(),
            #[cfg(feature = "parquet")]
            Form::Table(table) => table.finish(),
        }
    }
}

/// Checks that vectors are of one size.
fn check_size(vector: &[f32], features: usize) -> Result<()> {
    if vector.len() != features {
        bail!("a vector has {} features, and those before it have {features}", vector.len());
    }
    Ok(())
}
