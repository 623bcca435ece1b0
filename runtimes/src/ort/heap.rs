//! The memory of models: how the allocator of the C library gives it back while one is loaded, and the size of its pages.

use std::ffi::{c_int, c_void};
use std::thread;

/// Pieces from this size on are given back to the operating system as soon as they are freed, while a model is loaded.
const LOADING: c_int = 1 << 20;
/// The same at other times: the most to which glibc itself raises the size as a process goes on.
const OTHERWISE: c_int = 32 << 20;

/// While it lives, freed tensors go back to the operating system.
///
/// ONNX Runtime copies each weight out of the file, and copies those of products once more in an order that is faster to
/// read. By itself glibc keeps most of what is freed in between: of GPT-2, 0.2 GB of 0.88 GB. With another C library this does
/// nothing.
pub(super) struct Loading(());

impl Loading {
    pub(super) fn begin() -> Self {
        keep_below(LOADING);
        Self(())
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        keep_below(OTHERWISE);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn keep_below(bytes: c_int) {
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;
    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
    // SAFETY: mallopt takes any numbers and locks the allocator itself. What it refuses changes nothing.
    unsafe {
        mallopt(M_MMAP_THRESHOLD, bytes);
        // glibc keeps twice as much free at the end of the heap.
        mallopt(M_TRIM_THRESHOLD, bytes.saturating_mul(2));
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_below(_: c_int) {}

/// The size of a huge page of x86-64, and of the usual ones of AArch64.
const HUGE: usize = 2 << 20;

/// Memory regions from this size on get huge pages: what is smaller is not read so often that it counts.
const LARGE: usize = 4 * HUGE;

/// Has the memory of loaded models lie in huge pages, as far as the system has such pages free, while the caller goes on.
///
/// A step of a decoder reads all weights once. With pages of 4 kB the processor looks up an address every 4 kB; with huge pages
/// a step of a Llama of 1.1 billion parameters with weights of 4 bits took 0.9 of the time. The kernel copies what is in memory
/// already, 0.4 s for 0.8 GB, so this is for models that generate many tokens.
pub fn use_huge_pages() {
    // Without the thread, or before Linux 6.1, pages stay as they are.
    let _ = thread::Builder::new().name("pages".to_owned()).spawn(|| {
        let maps = planish_files::read_system("/proc/self/maps").unwrap_or_default();
        for (from, to) in maps.lines().filter_map(private_memory).filter(|(from, to)| to - from >= LARGE) {
            let first = from.next_multiple_of(HUGE);
            // One by one: the kernel gives up a range at the first page that it cannot move.
            (first..to.saturating_sub(HUGE - 1)).step_by(HUGE).for_each(collapse);
        }
    });
}

/// The range of a line of /proc/self/maps, if it is memory of this process that no file backs.
fn private_memory(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (range, rights, inode) = (words.next()?, words.next()?, words.nth(2)?);
    let is_heap = words.next().is_none_or(|name| name == "[heap]");
    let (from, to) = range.split_once('-')?;
    let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    (rights == "rw-p" && inode == "0" && is_heap).then_some((from, to))
}

/// Makes a huge page of the pages from an address on. What cannot be done changes nothing.
#[cfg(target_os = "linux")]
fn collapse(address: usize) {
    const MADV_COLLAPSE: c_int = 25;
    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    // SAFETY: the kernel checks the range, and memory that it moves keeps its address and contents.
    unsafe {
        madvise(std::ptr::with_exposed_provenance_mut(address), HUGE, MADV_COLLAPSE);
    }
}

#[cfg(not(target_os = "linux"))]
fn collapse(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_told_from_files_and_stacks() {
        let range = Some((0x7f00_0000_0000, 0x7f00_0080_0000));
        assert_eq!(private_memory("7f0000000000-7f0000800000 rw-p 00000000 00:00 0 "), range);
        assert_eq!(private_memory("7f0000000000-7f0000800000 rw-p 00000000 00:00 0    [heap]"), range);
        for other in [
            "rw-p 00000000 00:00 0   [stack]",
            "r--p 00000000 00:00 0",
            "rw-p 00000000 08:01 7  /lib/a.so",
            "rw-s 00000000 00:00 0",
        ] {
            assert_eq!(private_memory(&format!("7f0000000000-7f0000800000 {other}")), None);
        }
    }

    #[test]
    fn memory_keeps_its_contents() {
        let numbers: Vec<u64> = (0..1 << 21).collect();
        let from = numbers.as_ptr().addr().next_multiple_of(HUGE);
        collapse(from);
        collapse(from + HUGE);
        assert!((0..).zip(&numbers).all(|(at, number)| *number == at));
    }
}
