//! Vectors as the rows of one array, after a header that says how many there are: NumPy's format (numpy.lib.format, version 1.0) and
//! safetensors. The header is written again at the end, when the number is known.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::files::Streamed;

use super::{check_size, only_to_files};

/// The bytes of a header: room for any number of rows. NumPy wants a multiple of 64, safetensors one of 8.
const HEADER_BYTES: usize = 128;

/// How much is written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// What the header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatrixForm {
    Npy,
    Safetensors,
}

impl MatrixForm {
    /// The header of float32 [rows, features].
    fn header(self, rows: u64, features: usize) -> Result<Vec<u8>> {
        let (begin, text, end) = match self {
            Self::Npy => {
                let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {features}), }}");
                // Version 1.0, then the length of what follows.
                let length = u16::try_from(HEADER_BYTES - 10)?.to_le_bytes();
                ([&b"\x93NUMPY\x01\x00"[..], &length].concat(), text, &b"\n"[..])
            }
            Self::Safetensors => {
                let bytes = rows * features as u64 * size_of::<f32>() as u64;
                let text = format!(
                    r#"{{"embeddings":{{"dtype":"F32","shape":[{rows},{features}],"data_offsets":[0,{bytes}]}}}}"#
                );
                ((HEADER_BYTES as u64 - 8).to_le_bytes().to_vec(), text, &b""[..])
            }
        };
        let Some(blanks) = HEADER_BYTES.checked_sub(begin.len() + text.len() + end.len()) else {
            bail!("{rows} vectors of {features} features are more than a file has");
        };
        Ok([begin, text.into_bytes(), vec![b' '; blanks], end.to_vec()].concat())
    }
}

/// The file, with its rows so far.
pub(super) struct Matrix {
    file: BufWriter<Streamed>,
    form: MatrixForm,
    features: usize,
    rows: u64,
    name: String,
}

impl Matrix {
    pub(super) fn create(path: &Path, form: MatrixForm, features: usize) -> Result<Self> {
        let name = path.display().to_string();
        let mut file = Streamed::create(path)?;
        file.stream_position().with_context(|| only_to_files(path))?;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        file.write_all(&[0; HEADER_BYTES]).with_context(|| format!("cannot write {name}"))?;
        Ok(Self { file, form, features, rows: 0, name })
    }

    pub(super) fn write(&mut self, vector: &[f32]) -> Result<()> {
        check_size(vector, self.features)?;
        let mut bytes = Vec::with_capacity(size_of_val(vector));
        vector.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        self.rows += 1;
        self.file.write_all(&bytes).with_context(|| format!("cannot write {}", self.name))
    }

    pub(super) fn finish(self) -> Result<()> {
        let context = || format!("cannot write {}", self.name);
        let mut file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(context)?;
        let header = self.form.header(self.rows, self.features)?;
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&header)).with_context(context)?;
        file.place()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::SafeTensors;

    use super::*;
    use crate::npy;

    fn written(form: MatrixForm, vectors: &[[f32; 3]]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors");
        let mut matrix = Matrix::create(&path, form, 3).unwrap();
        assert!(matrix.write(&[1.0]).unwrap_err().to_string().contains("has 1 features"));
        vectors.iter().for_each(|vector| matrix.write(vector).unwrap());
        assert!(!path.exists(), "an unfinished file is not in its place");
        matrix.finish().unwrap();
        fs::read(path).unwrap()
    }

    #[test]
    fn arrays_are_read_back() {
        let vectors = [[1.0, -2.5, 0.0], [f32::MIN_POSITIVE, 3.0, 4.0]];
        let bytes: Vec<u8> = vectors.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        let npy_file = written(MatrixForm::Npy, &vectors);
        let rows = npy::read(&mut npy_file.as_slice(), 10, 1 << 20).unwrap();
        assert_eq!((rows.shape, rows.bytes), (vec![2, 3], bytes.clone()));
        assert_eq!((npy_file.len(), npy_file[HEADER_BYTES - 1]), (HEADER_BYTES + 24, b'\n'));
        let file = written(MatrixForm::Safetensors, &vectors);
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let tensor = tensors.tensor("embeddings").unwrap();
        assert_eq!((tensor.shape(), tensor.data()), (&[2, 3][..], &bytes[..]));
    }

    #[test]
    fn headers_have_room() {
        for form in [MatrixForm::Npy, MatrixForm::Safetensors] {
            assert_eq!(form.header(999_999_999_999, 8192).unwrap().len(), HEADER_BYTES);
        }
    }
}
