//! Numbered cases in processes of their own: one process watches others, which run cases one after another and write into
//! a log when each begins and how it ends. A process that ends in between is started again with the next case.

mod log;
mod watch;

pub use log::Log;
pub use watch::{Cases, End, Tally, watch};
