//! How the allocator of the C library gives memory back while a model is loaded.

use std::ffi::c_int;

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
