//! Libraries in place of those that a machine with a GPU has.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a driver with one GPU into a folder, `libcuda.so`, and returns a TensorRT-RTX of the same file. What the two do is in
/// `gpu.c`. A process that has loaded the driver takes it for the machine's, and so does one whose `LD_LIBRARY_PATH` names the
/// folder.
#[must_use]
pub fn gpu(folder: &Path) -> PathBuf {
    compiled(folder, "libcuda.so", include_str!("gpu.c"));
    let tensorrt = folder.join("libtensorrt_rtx.so.1");
    std::fs::hard_link(folder.join("libcuda.so"), &tensorrt).unwrap();
    tensorrt
}

/// An engine as TensorRT-RTX 1.7.0.9 writes it for compute capability 8.9: the header, and nothing after it.
#[must_use]
pub fn engine(folder: &Path) -> PathBuf {
    let mut header = [0u8; 64];
    header[..4].copy_from_slice(b"vtrt");
    header[0x10] = 64;
    header[0x18..0x1c].copy_from_slice(&[1, 7, 0, 9]);
    header[0x20] = 1 << 3;
    let path = folder.join("model.engine");
    std::fs::write(&path, header).unwrap();
    path
}

/// Writes NVIDIA's management library into a folder, for the GPU of [`gpu`]; returns its file. What it does is in `nvml.c`.
#[must_use]
pub fn nvml(folder: &Path) -> PathBuf {
    compiled(folder, "libnvidia-ml.so.1", include_str!("nvml.c"));
    folder.join("libnvidia-ml.so.1")
}

fn compiled(folder: &Path, name: &str, source: &str) {
    let (c, library) = (folder.join("library.c"), folder.join(name));
    std::fs::write(&c, source).unwrap();
    let options = ["-O1", "-shared", "-fPIC", &format!("-Wl,-soname,{name}"), "-o"];
    let status = Command::new("cc").args(options).args([&library, &c]).status().unwrap();
    assert!(status.success(), "{name} does not compile");
}
