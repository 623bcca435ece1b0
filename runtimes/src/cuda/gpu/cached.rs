//! Files in the user's folder of caches. Each is written whole, with its digest after it; what is not is no file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use planish_files::Kind;

use crate::cache_folder;

/// The file for what `parts` determine, in a folder of the runtime's; `None` where the user has no folder of caches.
pub(super) fn file(folder: &str, parts: &[impl AsRef<[u8]>], extension: &str) -> Option<PathBuf> {
    let mut hash = blake3::Hasher::new();
    for part in parts.iter().map(AsRef::as_ref) {
        hash.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let name = format!("{}.{extension}", &hash.finalize().to_hex()[..32]);
    Some(cache_folder::of_user()?.join("cuda").join(folder).join(name))
}

/// The bytes of a file that [`write`] wrote.
pub(super) fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = planish_files::read(file, &Kind::CACHED).ok()?;
    let at = bytes.len().checked_sub(blake3::OUT_LEN)?;
    let digest = bytes.split_off(at);
    (blake3::hash(&bytes).as_bytes().as_slice() == digest).then_some(bytes)
}

/// Writes bytes, under another name first: of processes that write at once, one file stays whole.
///
/// # Errors
/// When the folder cannot be written to.
pub(super) fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let new = file.with_extension(format!("{}.{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    fs::write(&new, [bytes, blake3::hash(bytes).as_bytes()].concat())?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_whole_is_not_read() {
        let folder = planish_testing::scratch();
        let path = folder.path().join("below/a.cubin");
        assert_eq!(read(&path), None);
        write(&path, b"code").unwrap();
        assert_eq!(read(&path), Some(b"code".to_vec()));
        let whole = fs::read(&path).unwrap();
        for broken in [&[], &whole[1..], &whole[..whole.len() - 1], &[whole.as_slice(), b"x"].concat()] {
            fs::write(&path, broken).unwrap();
            assert_eq!(read(&path), None);
        }
    }

    #[test]
    fn each_part_has_its_own_file() {
        let name = |parts: &[&str]| file("", parts, "bin").and_then(|file| Some(file.file_name()?.to_owned()));
        assert_ne!(name(&["ab", "c"]), name(&["a", "bc"]));
        assert_eq!(name(&["ab", "c"]), name(&["ab", "c"]));
    }
}
