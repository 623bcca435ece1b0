//! Arrays in NumPy's format (numpy.lib.format): a header with type and shape, then the elements.

use std::io::Read;

use anyhow::{Context, Result, bail};
use planish_ir::DType;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The most bytes of a header.
const MAX_HEADER: usize = 1 << 16;

/// The element types that are read, by NumPy's names.
const DTYPES: &[(&str, DType)] =
    &[("<f4", DType::F32), ("<f2", DType::F16), ("<i8", DType::I64), ("<i4", DType::I32), ("|b1", DType::Bool)];

/// The first rows of an array.
pub(super) struct Rows {
    pub(super) dtype: DType,
    /// The sizes that are left, the first with them.
    pub(super) shape: Vec<usize>,
    /// Little-endian elements in row-major order.
    pub(super) bytes: Vec<u8>,
}

/// Reads at most so many slices along the first axis, which may have so many bytes at most.
pub(super) fn read(reader: &mut impl Read, most: usize, limit: u64) -> Result<Rows> {
    let header = header(reader)?;
    let descr = quoted(value(&header, "descr")?)?;
    let Some((_, dtype)) = DTYPES.iter().find(|(name, _)| *name == descr) else {
        bail!("its type is {descr}; planish reads float32, float16, int64, int32 and bool; convert it with .astype");
    };
    let mut shape = shape(value(&header, "shape")?)?;
    if value(&header, "fortran_order")?.starts_with("True") {
        bail!("it is stored column by column; store np.ascontiguousarray of it");
    }
    if let Some(rows) = shape.first_mut() {
        *rows = most.min(*rows);
    }
    let too_large = || format!("{shape:?} elements are more than fit in memory");
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, size| bytes.checked_mul(*size)).with_context(too_large)?;
    if bytes as u64 > limit {
        bail!(
            "its {bytes} bytes of elements are more than {limit}, the most that is left of what is read into memory; take \
             fewer samples by --samples"
        );
    }
    let mut elements = Vec::new();
    reader.take(bytes as u64).read_to_end(&mut elements)?;
    if elements.len() < bytes {
        bail!("it ends after {} bytes of elements; its shape needs {bytes}", elements.len());
    }
    Ok(Rows { dtype: *dtype, shape, bytes: elements })
}

/// The dictionary of the header, as Python writes it.
fn header(reader: &mut impl Read) -> Result<String> {
    let mut start = [0; 8];
    reader.read_exact(&mut start).context("it is not a NumPy array")?;
    if !start.starts_with(MAGIC) {
        bail!("it is not a NumPy array: it does not begin with \\x93NUMPY");
    }
    let length = match start[6] {
        1 => {
            let mut length = [0; 2];
            reader.read_exact(&mut length)?;
            usize::from(u16::from_le_bytes(length))
        }
        2 | 3 => {
            let mut length = [0; 4];
            reader.read_exact(&mut length)?;
            usize::try_from(u32::from_le_bytes(length))?
        }
        version => bail!("it is of version {version} of NumPy's format; planish reads 1 to 3"),
    };
    if length > MAX_HEADER {
        bail!("its header has {length} bytes, more than an array's ever has");
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text)?;
    String::from_utf8(text).context("its header is not text")
}

/// What follows a key of the dictionary.
fn value<'a>(header: &'a str, key: &str) -> Result<&'a str> {
    let rest = header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    rest.with_context(|| format!("its header has no `{key}`"))
}

fn quoted(text: &str) -> Result<&str> {
    let inside = text.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    inside.map(|(inside, _)| inside).context("it has elements of several fields; give each an array of its own")
}

fn shape(text: &str) -> Result<Vec<usize>> {
    let inside = text.strip_prefix('(').and_then(|rest| rest.split_once(')')).map(|(inside, _)| inside);
    let sizes = inside.context("its header has no shape")?.split(',').map(str::trim).filter(|size| !size.is_empty());
    sizes.map(|size| size.parse().with_context(|| format!("its shape has the size `{size}`"))).collect()
}
