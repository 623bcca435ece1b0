//! The GPU's host code on a mocked driver, which runs kernels on the processor.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{env, fs, thread};

use planish_ir::DType;
use planish_testing::{mock_cuda, scratch};

use super::super::check;
use super::super::program::Style;
use super::*;
use crate::cuda::device::{Epilogue, Matrix};

fn gpu() -> Arc<dyn Device> {
    device("cuda").unwrap()
}

/// Starts the test again with the mocked driver, or goes on where it is there.
macro_rules! on_mock {
    ($name:ident $(, $variable:literal = $value:expr)*) => {
        if !mock_cuda::inside(concat!(module_path!(), "::", stringify!($name)), &[$(($variable, $value)),*]) {
            return;
        }
    };
}

/// How often the mocked driver was called for something.
fn count(name: &str) -> i64 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: the mocked driver has this function.
    unsafe {
        let driver = libloading::Library::new("libcuda.so").unwrap();
        driver.get::<unsafe extern "C" fn(*const std::ffi::c_char) -> i64>(b"mock_count\0").unwrap()(name.as_ptr())
    }
}

fn filled(device: &dyn Device, bytes: &[u8]) -> Buffer {
    let memory = device.allocate(bytes.len()).unwrap();
    device.upload(memory.address(), bytes).unwrap();
    memory
}

fn contents(device: &dyn Device, memory: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes()];
    device.download(memory.address(), &mut bytes).unwrap();
    bytes
}

#[test]
fn graphs_run() {
    on_mock!(graphs_run);
    let graph = check::graph(
        "input %x: f16[b, 16]
         input %w: f16[24, 16]
         input %bias: f16[24]
         %y = linear(%x, %w, bias: %bias) : f16[b, 24]
         %s = softmax(%y) : f16[b, 24]
         output s = %s",
    );
    let graph = graph.unwrap();
    let inputs = check::inputs(&graph, &[("b", 3)], 1).unwrap();
    let mut session = check::session(&graph, &gpu(), Style::Fused).unwrap();
    check::compare(&graph, &mut session, &inputs).unwrap();
}

#[test]
fn memory_that_is_freed_stays_with_the_process() {
    on_mock!(memory_that_is_freed_stays_with_the_process);
    let device = gpu();
    let one = || {
        drop(device.allocate(1 << 20).unwrap());
        device.wait().unwrap();
    };
    one();
    let taken = count("taken");
    (0..10).for_each(|_| one());
    assert_eq!((count("taken"), count("returned")), (taken, 0));
}

#[test]
fn sources_of_uploads_may_be_freed() {
    on_mock!(sources_of_uploads_may_be_freed);
    let device = gpu();
    let bytes = |seed: usize| -> Vec<u8> { (0..(9 << 20) + 3).map(|at| ((at * 31 + seed * 7) >> 3) as u8).collect() };
    let memory: Vec<Buffer> = (0..3).map(|seed| filled(device.as_ref(), &bytes(seed))).collect();
    let small: Vec<Buffer> = (0..300).map(|at| filled(device.as_ref(), &vec![at as u8; 1 + at * 100])).collect();
    for (seed, memory) in memory.iter().enumerate() {
        assert!(contents(device.as_ref(), memory) == bytes(seed), "memory {seed}");
    }
    for (at, memory) in small.iter().enumerate() {
        assert_eq!(contents(device.as_ref(), memory), vec![at as u8; 1 + at * 100]);
    }
    assert_eq!((count("pageable_uploads"), count("pageable_downloads")), (0, 0));
    let mut pinned = device.pinned(1000).unwrap();
    pinned.write().fill(3);
    let to = device.allocate(1000).unwrap();
    device.copy(to.address(), pinned.address(), 1000).unwrap();
    assert_eq!(contents(device.as_ref(), &to), vec![3; 1000]);
    let back = device.pinned(1000).unwrap();
    device.copy(back.address(), to.address(), 1000).unwrap();
    device.wait().unwrap();
    assert_eq!(back.read(), vec![3; 1000]);
}

#[test]
fn what_others_do_meanwhile_is_not_recorded() {
    on_mock!(what_others_do_meanwhile_is_not_recorded);
    let device = gpu();
    let [from, to, other] = [1, 2, 3].map(|byte| filled(device.as_ref(), &[byte; 64]));
    let (begun, is_begun) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let recording = thread::scope(|scope| {
        let (device, from, other) = (&device, &from, &other);
        scope.spawn(move || {
            is_begun.recv().unwrap();
            // Work, waiting, memory and a failure of another session.
            device.copy(other.address(), from.address(), 64).unwrap();
            assert_eq!(contents(device.as_ref(), other), [1; 64]);
            drop(device.pinned(64).unwrap());
            device.copy(1, 2, 64).unwrap_err();
            done.send(()).unwrap();
        });
        let mut give = || {
            begun.send(()).unwrap();
            is_done.recv().unwrap();
            device.copy(to.address(), from.address(), 64)
        };
        device.record(&mut give).unwrap().unwrap()
    });
    assert_eq!(contents(device.as_ref(), &to), [2; 64]);
    device.upload(other.address(), &[4; 64]).unwrap();
    recording.replay().unwrap();
    assert_eq!(contents(device.as_ref(), &to), [1; 64]);
    assert_eq!(contents(device.as_ref(), &other), [4; 64]);
}

#[test]
fn a_failed_recording_leaves_nothing_behind() {
    on_mock!(
        a_failed_recording_leaves_nothing_behind,
        "MOCK_CUDA_FAIL" = "cuMemFreeAsync:1:900,cuStreamEndCapture:3:901"
    );
    let device = gpu();
    let [from, to] = [1, 2].map(|byte| filled(device.as_ref(), &[byte; 64]));
    // The error of the memory that is dropped is one that the binding keeps for its next call.
    let reason = device.record(&mut || {
        drop(device.allocate(64).unwrap());
        Err("given up".to_owned())
    });
    assert_eq!(reason.err().as_deref(), Some("given up"));
    device.copy(to.address(), from.address(), 64).unwrap();
    assert_eq!(contents(device.as_ref(), &to), [1; 64]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        device.record(&mut || panic!("in the middle")).map(drop)
    }));
    assert!(panicked.is_err());
    let mut give = || device.copy(to.address(), from.address(), 64);
    let reason = device.record(&mut give).err().unwrap();
    assert!(reason.contains("the work was not recorded"), "{reason}");
    let nested = device.record(&mut || device.record(&mut || Ok(())).map(drop)).err().unwrap();
    assert!(nested.contains("a recording within a recording"), "{nested}");
    device.wait().unwrap();
    assert_eq!(count("cuStreamBeginCapture"), 4);
    device.record(&mut give).unwrap().unwrap().replay().unwrap();
    device.wait().unwrap();
}

#[test]
fn errors_name_kernels() {
    on_mock!(errors_name_kernels, "MOCK_CUDA_FAIL" = "cuLaunchKernel:2:719,cuStreamSynchronize:1:700");
    let device = gpu();
    device.start(BUSY).unwrap();
    let reason = device.start(BUSY).err().unwrap();
    assert!(reason.contains("the kernel spin cannot be launched with [1, 1, 1] blocks of 1 threads"), "{reason}");
    let reason = device.wait().unwrap_err();
    assert!(reason.contains("the latest first: spin"), "{reason}");
}

#[test]
fn the_host_gives_work_while_the_gpu_is_busy() {
    on_mock!(the_host_gives_work_while_the_gpu_is_busy);
    let device = gpu();
    let [from, to] = [1, 2].map(|byte| filled(device.as_ref(), &[byte; 64]));
    let time = |begin: Box<dyn Event>| {
        (0..100).for_each(|_| device.copy(to.address(), from.address(), 64).unwrap());
        device.event().unwrap().unwrap().since(begin.as_ref()).unwrap()
    };
    device.wait().unwrap();
    // A copy takes the mocked GPU 1 us, and the host 5 us to give.
    let idle = time(device.event().unwrap().unwrap());
    device.wait().unwrap();
    let busy = time(device.start(Duration::from_millis(1)).unwrap().unwrap());
    assert!(idle > Duration::from_micros(400) && busy < Duration::from_micros(150), "{idle:?}, {busy:?}");
    assert_eq!(count("spin_ns"), 1_000_000);
    device.start(Duration::from_secs(9)).unwrap();
    assert_eq!(count("spin_ns"), 2_000_000);
    device.start(Duration::ZERO).unwrap();
    assert_eq!(count("kernel spin"), 2);
}

#[test]
fn an_nvrtc_older_than_the_gpu_makes_ptx() {
    on_mock!(an_nvrtc_older_than_the_gpu_makes_ptx, "MOCK_CUDA_ARCH" = "120", "MOCK_NVRTC_ARCHS" = "75 80 90");
    let description = super::check("cuda").unwrap();
    assert!(description.version.contains("NVRTC does not know sm_120"), "{}", description.version);
    gpu().start(BUSY).unwrap();
    assert_eq!((count("ptx_modules"), count("cubin_modules")), (1, 0));
}

#[test]
fn an_nvrtc_that_knows_the_gpu_makes_machine_code() {
    on_mock!(an_nvrtc_that_knows_the_gpu_makes_machine_code, "MOCK_CUDA_ARCH" = "120");
    gpu().start(BUSY).unwrap();
    assert_eq!((count("ptx_modules"), count("cubin_modules")), (0, 1));
}

#[test]
fn a_library_that_is_found_before_the_one_that_was_named_is_refused() {
    let other = scratch();
    fs::copy(mock_cuda::folder().join("libnvrtc.so.13"), other.path().join("libnvrtc.so")).unwrap();
    let path = format!("{}:{}", other.path().display(), mock_cuda::folder().display());
    on_mock!(a_library_that_is_found_before_the_one_that_was_named_is_refused, "LD_LIBRARY_PATH" = path.as_str());
    let reason = super::check("cuda").unwrap_err().to_string();
    let first = env::var("LD_LIBRARY_PATH").unwrap().split(':').next().unwrap().to_owned();
    let expected = format!("but the system's loader finds {first}/libnvrtc.so first");
    assert!(reason.contains(&expected) && reason.contains("PLANISH_CUDA_LIB names"), "{reason}");
}

#[test]
fn libraries_may_be_in_folders_of_their_own() {
    let (all, nvrtc, cublas, driver) = (mock_cuda::folder(), scratch(), scratch(), scratch());
    for (to, name) in [(&nvrtc, "libnvrtc.so.13"), (&cublas, "libcublasLt.so.13"), (&driver, "libcuda.so.1")] {
        fs::copy(all.join(name), to.path().join(name)).unwrap();
    }
    fs::copy(all.join("libcuda.so.1"), driver.path().join("libcuda.so")).unwrap();
    let both = format!("{}:{}", nvrtc.path().display(), cublas.path().display());
    on_mock!(
        libraries_may_be_in_folders_of_their_own,
        "LD_LIBRARY_PATH" = &driver.path().display().to_string(),
        "PLANISH_CUDA_LIB" = both.as_str()
    );
    let location = super::check("cuda").unwrap().location;
    let named = env::var("PLANISH_CUDA_LIB").unwrap();
    let (nvrtc, cublas) = named.split_once(':').unwrap();
    let expected = format!("{nvrtc}/libnvrtc.so.13 (PLANISH_CUDA_LIB), {cublas}/libcublasLt.so.13 (PLANISH_CUDA_LIB)");
    assert_eq!(location, expected);
}

/// Computes a product twice. Returns how many products the first time ran, and whether the second time ran the second
/// algorithm.
fn product() -> [i64; 2] {
    let device = gpu();
    let ones = |count: usize| filled(device.as_ref(), &1f32.to_le_bytes().repeat(count));
    let (a, b, d) = (ones(4 * 8), ones(8 * 4), ones(4 * 4));
    let matrix = |memory: &Buffer, row| Matrix { at: memory.address(), row, step: 0, transposed: false };
    let product = Product {
        m: 4,
        n: 4,
        k: 8,
        batch: 1,
        a: matrix(&a, 8),
        b: matrix(&b, 4),
        c: None,
        d: matrix(&d, 4),
        alpha: 0.5,
        bias: None,
        epilogue: Epilogue::None,
        dtype: DType::F32,
        result: DType::F32,
    };
    device.multiply(&product).unwrap();
    assert_eq!(contents(device.as_ref(), &d), 4f32.to_le_bytes().repeat(16));
    let timed = count("cublasLtMatmul");
    let second = count("second_algorithm");
    device.multiply(&product).unwrap();
    device.wait().unwrap();
    [timed, count("second_algorithm") - second]
}

#[test]
fn the_algorithm_of_a_product_is_chosen_once_with_a_cold_cache() {
    const TEST: &str =
        "planish_runtimes::cuda::gpu::tests::the_algorithm_of_a_product_is_chosen_once_with_a_cold_cache";
    let caches = scratch();
    let folder = caches.path().join("planish/cuda/products");
    // Two algorithms are run once and five times, and a third fails; then the second one is run, twice.
    let chosen = [14, 1];
    let rounds =
        [("first", chosen), ("kept", [1, 1]), ("broken", chosen), ("foreign", chosen), ("another version", chosen)];
    for (round, expected) in rounds {
        let files = || fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let change = |new: &dyn Fn(&Path)| files().for_each(|file| new(&file));
        match round {
            "broken" => change(&|file| fs::write(file, "broken").unwrap()),
            // Whole, but what cublasLt does not take.
            "foreign" => change(&|file| cached::write(file, &[9; 64]).unwrap()),
            _ => {}
        }
        let path = caches.path().display().to_string();
        let version = if round == "another version" { "130001" } else { "130000" };
        let variables = [("XDG_CACHE_HOME", path.as_str()), ("ROUND", round), ("MOCK_CUBLASLT_VERSION", version)];
        if mock_cuda::inside(TEST, &variables) && env::var("ROUND").as_deref() == Ok(round) {
            assert_eq!(product(), expected, "{round}");
            return;
        }
    }
}

#[test]
fn old_drivers_are_unavailable() {
    assert_eq!(too_old((13, 0), 13), None);
    assert_eq!(too_old((12, 9), 12), None);
    assert!(too_old((12, 6), 12).is_some_and(|reason| reason.contains("needs 12.8")));
    assert!(too_old((12, 9), 13).is_some_and(|reason| reason.contains("NVRTC compiles for CUDA 13")));
}
