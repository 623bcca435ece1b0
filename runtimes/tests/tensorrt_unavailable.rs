//! TensorRT is unavailable, with a reason, where its library is missing, broken, too old or of the other product, and
//! where there is no GPU.

#![cfg(feature = "trtx")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use planish_runtimes::tensorrt::{BuildError, BuildOptions, ENTERPRISE, Library, PRODUCT, TensorRt, build, devices};
use planish_runtimes::{Format, Model, Runtime, RuntimeError, SessionOptions, Unavailable};
use planish_testing::{scratch, skipped};

fn unavailable(library: &Path) -> Unavailable {
    let runtime = TensorRt::new(Some(library.to_owned()));
    let model = Model::file(Format::ENGINE, Path::new("model.engine"));
    let error = runtime.load(model, SessionOptions::default()).err().unwrap();
    let checked = runtime.check().unwrap_err();
    assert!(matches!(error, RuntimeError::Unavailable(same) if same == checked));
    checked
}

/// A library whose functions answer with this version, and make nothing.
fn fake(folder: &Path, major: u32, minor: u32) -> PathBuf {
    let file = if ENTERPRISE { "libnvinfer.so.11" } else { "libtensorrt_rtx.so.1" };
    let (c, library) = (folder.join("library.c"), folder.join(file));
    let source = format!(
        "int getInferLibMajorVersion(void) {{ return {major}; }}\nint getInferLibMinorVersion(void) {{ return {minor}; }}\n\
         int getInferLibPatchVersion(void) {{ return 0; }}\nint getInferLibBuildVersion(void) {{ return 9; }}\n\
         void *createInferRuntime_INTERNAL(void *logger, int version) {{ return 0; }}\n"
    );
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &c]).status().unwrap();
    assert!(status.success());
    library
}

/// The version of the product that this program was built for, and one of the other product.
fn versions() -> [(u32, u32); 2] {
    if ENTERPRISE { [(11, 4), (1, 7)] } else { [(1, 7), (11, 4)] }
}

#[test]
fn a_missing_library_says_where_it_was_looked_for_and_what_to_do() {
    let missing = unavailable(Path::new("/nonexistent/libtensorrt.so")).to_string();
    assert!(
        missing.contains("looked at /nonexistent/libtensorrt.so (--runtime-option trt-lib): No such file"),
        "{missing}"
    );
    assert!(missing.contains("PLANISH_TRT_LIB"), "{missing}");
}

#[test]
fn another_library_is_unavailable() {
    let folder = scratch();
    let (c, library) = (folder.path().join("library.c"), folder.path().join("library.so"));
    std::fs::write(&c, "int something(void) { return 1; }").unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &c]).status().unwrap();
    assert!(status.success());
    let other = unavailable(&library);
    assert!(other.looked[0].ends_with("it does not export getInferLibMajorVersion, so it is no TensorRT"), "{other}");
}

#[test]
fn a_version_that_is_too_old_or_of_another_major_is_unavailable() {
    let [(major, minor), _] = versions();
    for (library_major, library_minor) in [(major, minor - 1), (major + 1, 0)] {
        let folder = scratch();
        let old = unavailable(&fake(folder.path(), library_major, library_minor));
        let expected = format!(
            "it is {PRODUCT} {library_major}.{library_minor}.0.9; {major}.{minor} or newer {major}.* is needed"
        );
        assert!(old.looked[0].ends_with(&expected), "{old}");
    }
}

#[test]
fn the_other_product_is_unavailable_and_named() {
    let [_, (major, minor)] = versions();
    let folder = scratch();
    let other = unavailable(&fake(folder.path(), major, minor));
    let (is, feature) = if ENTERPRISE { ("TensorRT-RTX", "tensorrt-rtx") } else { ("TensorRT", "tensorrt") };
    let expected = format!("it is {is} {major}.{minor}.0.9, and this planish was built for {PRODUCT}");
    assert!(other.looked[0].contains(&expected), "{other}");
    assert!(other.looked[0].ends_with(&format!("cargo build --release --features {feature}")), "{other}");
}

/// A library that only loads engines builds none, and says so.
#[test]
fn a_library_without_a_builder_is_named() {
    let [(major, minor), _] = versions();
    let folder = scratch();
    let library = Library::open(Some(fake(folder.path(), major, minor))).unwrap();
    let error =
        build(library, Path::new("model.onnx"), &[], &BuildOptions::default(), &(), &mut Vec::new()).err().unwrap();
    let without_gpu = ENTERPRISE && devices().is_err();
    let expected = if without_gpu { "CUDA driver" } else { "it builds none" };
    assert!(matches!(&error, BuildError::Unavailable(u) if u.reason.contains(expected)), "{error}");
}

/// After the check of the driver nothing of TensorRT is called that would end the process.
#[test]
fn without_a_gpu_the_runtime_is_unavailable() {
    if devices().is_ok() {
        return skipped("a GPU is there");
    }
    let [(major, minor), _] = versions();
    let folder = scratch();
    let none = unavailable(&fake(folder.path(), major, minor));
    assert!(none.reason.contains("CUDA driver"), "{none}");
}

/// NVIDIA's lean runtime, as `make test-tensorrt` brings it: without a driver it returns pointers that end the process.
#[test]
#[cfg(feature = "tensorrt")]
fn the_lean_runtime_is_loaded_and_guarded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.deps/tensorrt-lean/libnvinfer_lean.so.11");
    assert!(path.exists(), "{} is not there; `make test-tensorrt` fetches it", path.display());
    let library = Library::open(Some(path.clone())).unwrap();
    assert_eq!((library.version.major, library.version.minor), (11, 4));
    if devices().is_err() {
        assert!(unavailable(&path).reason.contains("CUDA driver"));
    }
}
