//! Weight files in the safetensors format: an 8 byte little-endian length, a JSON header of that
//! length, then the bytes of the tensors, without gaps (<https://github.com/huggingface/safetensors>).
//!
//! Opening a file reads and checks its header only. Tensors are read by position when a weight
//! is evaluated; nothing is mapped into memory.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::safetensors::Dtype;
use planish_ir::{DType, WeightSource};
use serde::de::value::StrDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};

use crate::ModelError;
use crate::checkpoint::elsewhere::{Bytes, RemoteFile};
use crate::checkpoint::gguf;

/// The longest header that the format allows, in bytes.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The first bytes of a Git LFS pointer.
const GIT_LFS: &[u8; 8] = b"version ";

/// The bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;

/// The entry of a tensor in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// The element type as the format spells it, e.g. `BF16`, or `Q4_K` in a GGUF file.
    pub dtype: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Where the first byte is in the file.
    pub offset: u64,
    /// How many bytes it takes.
    pub bytes: u64,
}

impl StoredTensor {
    /// The element type, or `None` for one that graphs do not have.
    #[must_use]
    pub fn element_type(&self) -> Option<DType> {
        Some(match self.dtype.as_str() {
            "BOOL" => DType::Bool,
            "I8" => DType::I8,
            "I16" => DType::I16,
            "I32" => DType::I32,
            "I64" => DType::I64,
            "U8" => DType::U8,
            "U16" => DType::U16,
            "U32" => DType::U32,
            "U64" => DType::U64,
            "F8_E4M3" => DType::F8E4M3FN,
            "F8_E5M2" => DType::F8E5M2,
            "F8_E8M0" => DType::F8E8M0,
            "F16" => DType::F16,
            "BF16" => DType::Bf16,
            "F32" => DType::F32,
            "F64" => DType::F64,
            _ => return None,
        })
    }
}

/// An open weight file with its checked header.
#[derive(Debug)]
pub struct WeightFile {
    path: PathBuf,
    name: String,
    file: Bytes,
    bytes: u64,
    tensors: BTreeMap<String, StoredTensor>,
}

impl WeightFile {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// When it cannot be read, is cut short, or its header is malformed or does not describe
    /// the bytes that follow it.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let (file, bytes) = planish_files::open(path)?;
        Self::of_bytes(path, Bytes::Here(file), bytes)
    }

    /// The same of a file that is not here; `path` stands for it.
    pub(crate) fn open_remote(path: &Path, file: Arc<dyn RemoteFile>) -> Result<Self, ModelError> {
        let bytes = file.bytes();
        Self::of_bytes(path, Bytes::Elsewhere(file), bytes)
    }

    fn of_bytes(path: &Path, file: Bytes, bytes: u64) -> Result<Self, ModelError> {
        let read = |offset, buffer: &mut [u8]| {
            file.read_at(offset, buffer).map_err(|source| ModelError::Read { path: path.to_owned(), source })
        };
        let bad = |message| ModelError::File { path: path.to_owned(), message };

        if bytes < LENGTH_BYTES {
            return Err(bad(format!("{bytes} bytes are too few for a safetensors file: it was cut short")));
        }
        let mut length = [0; 8];
        read(0, &mut length)?;
        if length == *GIT_LFS {
            return Err(bad(
                "this is a pointer of Git LFS, not the file itself: fetch that with `git lfs pull`".to_owned()
            ));
        }
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER_BYTES {
            return Err(bad(format!(
                "the header would be {length} bytes long, the format allows {MAX_HEADER_BYTES}: \
                 this is not a safetensors file"
            )));
        }
        let data = LENGTH_BYTES + length;
        if data > bytes {
            return Err(bad(format!(
                "the header ends at byte {data}, the file has {bytes}: it was cut short, or is not a safetensors file"
            )));
        }
        // The bound above keeps this at 100 MB.
        let mut header = vec![0; usize::try_from(length).unwrap_or_default()];
        read(LENGTH_BYTES, &mut header)?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|e| bad(format!("the header is malformed: {e}")))?;
        let tensors = check(header.0, data, bytes - data).map_err(bad)?;

        Ok(Self::with(path, file, bytes, tensors))
    }

    /// A file of a size whose header was read and checked.
    pub(crate) fn with_tensors(path: &Path, file: File, bytes: u64, tensors: BTreeMap<String, StoredTensor>) -> Self {
        Self::with(path, Bytes::Here(file), bytes, tensors)
    }

    fn with(path: &Path, file: Bytes, bytes: u64, tensors: BTreeMap<String, StoredTensor>) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { path: path.to_owned(), name, file, bytes, tensors }
    }

    /// The same file with the folder of the module that it is in before its name, so that files of several modules differ.
    pub(crate) fn of_module(self, module: &str) -> Self {
        Self { name: format!("{module}-{}", self.name), ..self }
    }

    /// Opens a GGUF file and checks its header; tensors have the names and types of the file.
    ///
    /// # Errors
    /// When it cannot be read, is cut short, or its header is malformed or does not describe the bytes that follow it.
    pub fn open_gguf(path: &Path) -> Result<Self, ModelError> {
        gguf::open_file(path)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the file in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The tensors by name.
    #[must_use]
    pub fn tensors(&self) -> &BTreeMap<String, StoredTensor> {
        &self.tensors
    }
}

impl WeightSource for WeightFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn file_path(&self) -> Option<&Path> {
        matches!(self.file, Bytes::Here(_)).then_some(&self.path)
    }
}

/// A tensor as the header spells it; offsets count from the end of the header.
#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// The header's tensors in file order, names that occur twice included.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let entry = map.next_value().map_err(|e| A::Error::custom(format!("tensor `{name}`: {e}")))?;
                    entries.push((name, entry));
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Checks that the tensors cover `length` bytes from `start` on: each once, and as many as type
/// and shape say.
fn check(mut entries: Vec<(String, Entry)>, start: u64, length: u64) -> Result<BTreeMap<String, StoredTensor>, String> {
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut covered = 0;
    let mut before = String::new();
    let mut tensors = BTreeMap::new();
    for (name, Entry { dtype, shape, data_offsets: (begin, end) }) in entries {
        if end < begin {
            return Err(format!("tensor `{name}` ends at byte {end}, before its start at {begin}"));
        }
        if begin < covered {
            return Err(format!("tensors `{before}` and `{name}` overlap at byte {begin} of the data"));
        }
        if begin > covered {
            return Err(format!("no tensor covers bytes {covered} to {begin} of the data, before `{name}`"));
        }
        if end > length {
            return Err(format!(
                "tensor `{name}` ends at byte {end} of the data, the file has {length}: it was cut short; \
                 download it again"
            ));
        }
        if let Some(bits) = element_bits(&dtype) {
            let bits = shape.iter().try_fold(bits, |n, &d| n.checked_mul(d as u64));
            if bits != (end - begin).checked_mul(8) {
                return Err(format!("tensor `{name}` is {dtype}{shape:?} but takes {} bytes", end - begin));
            }
        }
        let tensor = StoredTensor { dtype, shape, offset: start + begin, bytes: end - begin };
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(format!("the header names tensor `{name}` twice"));
        }
        (covered, before) = (end, name);
    }
    if covered < length {
        return Err(format!("no tensor covers the last {} bytes of the file", length - covered));
    }
    Ok(tensors)
}

/// Bits an element takes, or `None` for a type that the format does not define.
fn element_bits(dtype: &str) -> Option<u64> {
    let name: StrDeserializer<'_, serde::de::value::Error> = dtype.into_deserializer();
    Some(Dtype::deserialize(name).ok()?.bitsize() as u64)
}
