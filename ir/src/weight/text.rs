//! Elements of text as bytes: each one's length in 4 bytes, little-endian, and then its bytes.

/// Puts elements together; `None` where one is too long.
pub(super) fn pack<T: AsRef<[u8]>>(elements: &[T]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for element in elements {
        let element = element.as_ref();
        out.extend_from_slice(&u32::try_from(element.len()).ok()?.to_le_bytes());
        out.extend_from_slice(element);
    }
    Some(out)
}

/// The elements that bytes hold; `None` where they end within one.
#[must_use]
pub fn unpack_text(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut out = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (element, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        out.push(element);
        bytes = rest;
    }
    bytes.is_empty().then_some(out)
}
