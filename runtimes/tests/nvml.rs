//! The figures of a GPU arrive from NVIDIA's management library, and are absent without it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use libloading::Library;
use planish_runtimes::nvml::{GpuDescription, GpuMonitor, GpuState};
use planish_testing::{fake, scratch};

#[test]
fn the_figures_of_a_gpu_are_those_of_the_library() {
    let folder = scratch();
    let _ = fake::gpu(folder.path());
    // SAFETY: the libraries of the tests. They stay loaded, and the loader knows them by the names that planish asks for.
    let driver = unsafe { Library::new(folder.path().join("libcuda.so")) }.unwrap();
    assert!(GpuMonitor::open().is_none(), "there is no library, or it does not know the GPU of the tests");
    // SAFETY: as above.
    let library = unsafe { Library::new(fake::nvml(folder.path())) }.unwrap();
    let monitor = GpuMonitor::open().unwrap();
    let described = GpuDescription {
        name: "A fake GPU 80GB".to_owned(),
        driver: Some("580.65.06".to_owned()),
        max_sm_mhz: Some(1980),
        max_memory_mhz: Some(2619),
        // The library does not tell it.
        power_limit_w: None,
    };
    assert_eq!(described.to_string(), "GPU: A fake GPU 80GB, driver 580.65.06, at most 1980 MHz, memory 2619 MHz");
    assert_eq!(monitor.description(), Some(described));
    let state = GpuState {
        sm_mhz: Some(1410),
        memory_mhz: Some(2619),
        temperature_c: Some(71),
        power_w: Some(512.5),
        // That it idles is none.
        throttled: vec!["power cap"],
    };
    assert_eq!((monitor.state(), monitor.joules()), (state, Some(5.0)));
    drop(monitor);
    drop((driver, library));
}
