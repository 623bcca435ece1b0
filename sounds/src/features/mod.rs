//! Features of sound over time: energies of bands of frequencies in windows of samples.

mod log_mel;
mod mel;
mod spectra;
mod window;

pub(crate) use log_mel::FLOOR as LEAST_ENERGY;
pub use log_mel::LogMel;
pub use mel::{MelBank, MelOptions, MelScale};
pub use spectra::{Edges, Spectra};
pub use window::Window;
