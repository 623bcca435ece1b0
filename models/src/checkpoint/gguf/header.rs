//! The header of a GGUF file: metadata, and where the tensors are
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>).

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use planish_ir::weight::GgmlBlock;

use crate::ModelError;
use crate::checkpoint::safetensors::{MAX_HEADER_BYTES, StoredTensor, WeightFile};

use super::metadata::{ARRAY, Array, Metadata, TEXT, Value, scalar, scalar_bytes};

const MAGIC: &[u8; 4] = b"GGUF";

/// The most entries of metadata, and the most tensors, that are read.
const MAX_ENTRIES: u64 = 1 << 17;
/// The most dimensions of a tensor that GGML has.
const MAX_DIMENSIONS: u32 = 4;
/// The deepest nesting of arrays that is read.
const MAX_DEPTH: usize = 4;
/// How much of the header is read at once, in bytes.
const READ_BYTES: usize = 1 << 16;
/// Where tensors begin, unless the metadata says another multiple.
const ALIGNMENT: u64 = 32;

/// The types of tensors that are read, with their numbers.
const TYPES: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (20, "IQ4_NL"),
    (23, "IQ4_XS"),
    (30, "BF16"),
    (39, "MXFP4"),
];

/// Other types of tensors, for messages.
const OTHER_TYPES: &[(u32, &str)] = &[
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
];

/// Reads a file from its beginning on, and keeps what it read.
struct Reader<'a> {
    file: &'a File,
    bytes: u64,
    header: Vec<u8>,
    at: usize,
}

impl Reader<'_> {
    /// The place of the next bytes, which are in `header` then.
    fn place(&mut self, count: u64, what: &str) -> Result<Range<usize>, String> {
        let end = (self.at as u64).checked_add(count);
        let end = end.filter(|end| *end <= self.bytes).ok_or_else(|| {
            format!(
                "{what} at byte {} would take {count} bytes, the file has {}: it was cut short, or is damaged",
                self.at, self.bytes
            )
        })?;
        if end > MAX_HEADER_BYTES {
            return Err(format!("the header is longer than {MAX_HEADER_BYTES} bytes, the most that is read"));
        }
        let end = usize::try_from(end).map_err(|e| e.to_string())?;
        if end > self.header.len() {
            let known = self.header.len();
            let upto = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(end.saturating_add(READ_BYTES));
            self.header.resize(upto, 0);
            let (_, new) = self.header.split_at_mut(known);
            self.file.read_exact_at(new, known as u64).map_err(|e| format!("cannot read the header: {e}"))?;
        }
        let place = self.at..end;
        self.at = end;
        Ok(place)
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let place = self.place(N as u64, what)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.header[place]);
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, String> {
        self.take(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, String> {
        self.take(what).map(u64::from_le_bytes)
    }

    fn text(&mut self, what: &str) -> Result<String, String> {
        let length = self.u64(what)?;
        let place = self.place(length, what)?;
        String::from_utf8(self.header[place].to_vec()).map_err(|_| format!("{what} is not UTF-8"))
    }

    fn value(&mut self, kind: u32, what: &str) -> Result<Value, String> {
        match (kind, scalar_bytes(kind)) {
            (TEXT, _) => self.text(what).map(Value::Text),
            (ARRAY, _) => self.array(what, 0).map(Value::Array),
            (_, Some(size)) => {
                let place = self.place(size as u64, what)?;
                scalar(kind, &self.header[place]).ok_or_else(|| format!("{what} is of no known type"))
            }
            (_, None) => Err(format!("{what} is of type {kind}, which the format does not have")),
        }
    }

    /// Passes over a list.
    fn array(&mut self, what: &str, depth: usize) -> Result<Array, String> {
        if depth >= MAX_DEPTH {
            return Err(format!("{what} is a list in lists, deeper than {MAX_DEPTH}"));
        }
        let (kind, length) = (self.u32(what)?, self.u64(what)?);
        let begin = self.at;
        match (kind, scalar_bytes(kind)) {
            (_, Some(size)) => {
                let count = length.checked_mul(size as u64).ok_or_else(|| format!("{what} has {length} elements"))?;
                self.place(count, what)?;
            }
            (TEXT, _) => {
                for _ in 0..length {
                    let bytes = self.u64(what)?;
                    self.place(bytes, what)?;
                }
            }
            (ARRAY, _) => {
                for _ in 0..length {
                    self.array(what, depth + 1)?;
                }
            }
            _ => return Err(format!("{what} has elements of type {kind}, which the format does not have")),
        }
        let length = usize::try_from(length).map_err(|e| e.to_string())?;
        Ok(Array { kind, length, place: begin..self.at })
    }
}

/// The entry of a tensor, before places are checked.
struct Entry {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    offset: u64,
    bytes: u64,
}

/// Opens a file, and checks its header.
///
/// # Errors
/// When it cannot be read, or its header is malformed or does not describe the bytes that follow it.
pub(crate) fn open(path: &Path) -> Result<(WeightFile, Metadata), ModelError> {
    let (file, bytes) = planish_files::open(path)?;
    let (metadata, tensors) =
        read(&file, bytes).map_err(|message| ModelError::File { path: path.to_owned(), message })?;
    Ok((WeightFile::with_tensors(path, file, bytes, tensors), metadata))
}

fn read(file: &File, bytes: u64) -> Result<(Metadata, BTreeMap<String, StoredTensor>), String> {
    let mut reader = Reader { file, bytes, header: Vec::new(), at: 0 };
    if bytes < 24 {
        return Err(format!("{bytes} bytes are too few for a GGUF file: it was cut short"));
    }
    match &reader.take("the first bytes")? {
        MAGIC => {}
        b"vers" => {
            return Err("this is a pointer of Git LFS, not the file itself: fetch that with `git lfs pull`".to_owned());
        }
        _ => return Err("this is not a GGUF file: it does not begin with `GGUF`".to_owned()),
    }
    match reader.u32("the version")? {
        2 | 3 => {}
        version if (1..16).contains(&version.swap_bytes()) => {
            return Err(
                "the file is big-endian; only little-endian GGUF files are read: convert the model again".to_owned()
            );
        }
        version => {
            return Err(format!("the version of the format is {version}; 2 and 3 are read: convert the model again"));
        }
    }
    let (tensors, entries) = (reader.u64("the number of tensors")?, reader.u64("the number of entries")?);
    for (count, what) in [(tensors, "tensors"), (entries, "entries of metadata")] {
        if count > MAX_ENTRIES {
            return Err(format!("the header announces {count} {what}; at most {MAX_ENTRIES} are read: it is damaged"));
        }
    }
    let mut values = BTreeMap::new();
    for _ in 0..entries {
        let key = reader.text("a key of the metadata")?;
        let what = format!("the metadata `{key}`");
        let kind = reader.u32(&what)?;
        let value = reader.value(kind, &what)?;
        if values.insert(key, value).is_some() {
            return Err(format!("{what} is there twice"));
        }
    }
    let entries = (0..tensors).map(|_| entry(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    let alignment = match values.get("general.alignment") {
        None => ALIGNMENT,
        Some(Value::Integer(n)) if (1..=1 << 30).contains(n) && n.count_ones() == 1 => {
            u64::try_from(*n).unwrap_or(ALIGNMENT)
        }
        Some(other) => return Err(format!("`general.alignment` is {other}, expected a power of two")),
    };
    let start = (reader.at as u64).next_multiple_of(alignment);
    let tensors = check(entries, start, alignment, bytes)?;
    reader.header.truncate(reader.at);
    Ok((Metadata { header: reader.header, values }, tensors))
}

fn entry(reader: &mut Reader<'_>) -> Result<Entry, String> {
    let name = reader.text("the name of a tensor")?;
    let what = format!("tensor `{name}`");
    let rank = reader.u32(&what)?;
    if !(1..=MAX_DIMENSIONS).contains(&rank) {
        return Err(format!("{what} has {rank} dimensions; the format has 1 to {MAX_DIMENSIONS}"));
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        let size = reader.u64(&what)?;
        let size = usize::try_from(size).ok().filter(|size| *size > 0);
        shape.push(size.ok_or_else(|| format!("{what} has a dimension that is 0 or does not fit 64 bits"))?);
    }
    // The innermost dimension is stored first.
    shape.reverse();
    let kind = reader.u32(&what)?;
    let offset = reader.u64(&what)?;
    let named = |types: &[(u32, &'static str)]| types.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name);
    let Some(dtype) = named(TYPES) else {
        let other = named(OTHER_TYPES).map_or_else(|| format!("number {kind}"), str::to_owned);
        let known: Vec<&str> = TYPES.iter().map(|(_, name)| *name).collect();
        return Err(format!(
            "{what} is of type {other}, which is not read: known are {}; quantize the model to one of these",
            known.join(", ")
        ));
    };
    let bytes = tensor_bytes(dtype, &shape).map_err(|message| format!("{what} {message}"))?;
    Ok(Entry { name, dtype, shape, offset, bytes })
}

/// The blocks of a type as the header spells it.
pub(crate) fn block(dtype: &str) -> Option<GgmlBlock> {
    dtype.to_ascii_lowercase().parse().ok()
}

/// The bytes of a tensor of a type and a shape.
fn tensor_bytes(dtype: &str, shape: &[usize]) -> Result<u64, String> {
    let (elements, bytes) = match block(dtype) {
        Some(block) => (block.elements() as u64, block.bytes() as u64),
        None => (1, if dtype == "F32" { 4 } else { 2 }),
    };
    let row = shape.last().copied().unwrap_or(1) as u64;
    if !row.is_multiple_of(elements) {
        return Err(format!("is {dtype}{shape:?}: rows of {row} elements are not whole blocks of {elements}"));
    }
    let all = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64));
    let all = all.and_then(|n| (n / elements).checked_mul(bytes));
    all.ok_or_else(|| format!("is {dtype}{shape:?}, which does not fit 64 bits"))
}

/// Checks that tensors are inside the file, from `start` on, and do not overlap.
fn check(
    mut entries: Vec<Entry>,
    start: u64,
    alignment: u64,
    length: u64,
) -> Result<BTreeMap<String, StoredTensor>, String> {
    entries.sort_by_key(|entry| entry.offset);
    let mut tensors = BTreeMap::new();
    let (mut covered, mut before) = (0, String::new());
    for Entry { name, dtype, shape, offset, bytes } in entries {
        if !offset.is_multiple_of(alignment) {
            return Err(format!(
                "tensor `{name}` begins at byte {offset} of the data, which is no multiple of {alignment}"
            ));
        }
        if offset < covered {
            return Err(format!("tensors `{before}` and `{name}` overlap at byte {offset} of the data"));
        }
        let place = start.checked_add(offset).and_then(|at| Some((at, at.checked_add(bytes)?)));
        let Some((at, end)) = place.filter(|(_, end)| *end <= length) else {
            return Err(format!(
                "tensor `{name}` would take {bytes} bytes from byte {offset} of the data on, which begins at byte {start}; the file \
                 has {length} bytes: it was cut short; download it again"
            ));
        };
        let tensor = StoredTensor { dtype: dtype.to_owned(), shape, offset: at, bytes };
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(format!("the header names tensor `{name}` twice"));
        }
        (covered, before) = (end - start, name);
    }
    Ok(tensors)
}
