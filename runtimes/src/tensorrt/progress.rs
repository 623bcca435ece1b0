//! How far a build has come, and how it is cancelled.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use trtx_sys::nvinfer1::IProgressMonitor;
use trtx_sys::{trtx_create_progress_monitor, trtx_destroy_progress_monitor};

/// Sees the phases of a build. TensorRT calls it from any of its threads.
pub trait Progress: Sync {
    /// A phase of so many steps begins, inside another one where `parent` is given.
    fn begin(&self, phase: &str, parent: Option<&str>, steps: u32);
    /// A step of a phase is done. The build is cancelled where this returns false.
    fn step(&self, phase: &str, step: u32) -> bool;
    /// A phase is done.
    fn end(&self, phase: &str);
}

/// Sees nothing and cancels nothing.
impl Progress for () {
    fn begin(&self, _: &str, _: Option<&str>, _: u32) {}

    fn step(&self, _: &str, _: u32) -> bool {
        true
    }

    fn end(&self, _: &str) {}
}

struct State<'a> {
    progress: &'a dyn Progress,
    cancelled: AtomicBool,
}

/// TensorRT's `IProgressMonitor` of a [`Progress`]. The builder's configuration points to it, so it is dropped after that.
pub(super) struct Monitor<'a> {
    interface: *mut IProgressMonitor,
    /// At a fixed address, which the interface knows.
    state: Box<State<'a>>,
}

impl<'a> Monitor<'a> {
    pub(super) fn new(progress: &'a dyn Progress) -> Self {
        let state = Box::new(State { progress, cancelled: AtomicBool::new(false) });
        let data: *const State<'a> = &raw const *state;
        // SAFETY: the functions take what is given here; the state lives longer than the interface.
        let interface = unsafe { trtx_create_progress_monitor(data.cast_mut().cast(), begin, step, end) };
        Self { interface, state }
    }

    pub(super) fn interface(&self) -> *mut IProgressMonitor {
        self.interface
    }

    /// Whether the progress cancelled the build.
    pub(super) fn cancelled(&self) -> bool {
        self.state.cancelled.load(Ordering::SeqCst)
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `trtx_create_progress_monitor`, destroyed once.
        unsafe { trtx_destroy_progress_monitor(self.interface) };
    }
}

/// # Safety
/// `data` is that of a living monitor.
unsafe fn state<'a>(data: *mut c_void) -> &'a State<'a> {
    // SAFETY: as the caller promises.
    unsafe { &*data.cast::<State<'a>>() }
}

/// # Safety
/// `text` is null or ends in zero.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: as the caller promises.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

unsafe extern "system" fn begin(data: *mut c_void, phase: *const c_char, parent: *const c_char, steps: i32) {
    // SAFETY: TensorRT passes what the monitor was made with, and texts that end in zero.
    let (state, phase, parent) = unsafe { (state(data), text(phase), text(parent)) };
    state.progress.begin(&phase.unwrap_or_default(), parent.as_deref(), steps.try_into().unwrap_or(0));
}

unsafe extern "system" fn step(data: *mut c_void, phase: *const c_char, step: i32) -> bool {
    // SAFETY: as above.
    let (state, phase) = unsafe { (state(data), text(phase)) };
    let goes_on = state.progress.step(&phase.unwrap_or_default(), step.try_into().unwrap_or(0));
    if !goes_on {
        state.cancelled.store(true, Ordering::SeqCst);
    }
    !state.cancelled.load(Ordering::SeqCst)
}

unsafe extern "system" fn end(data: *mut c_void, phase: *const c_char) {
    // SAFETY: as above.
    let (state, phase) = unsafe { (state(data), text(phase)) };
    state.progress.end(&phase.unwrap_or_default());
}
