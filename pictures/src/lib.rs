//! Pictures as data: files of pictures become the inputs that a model takes.
//!
//! [`Picture`] decodes, [`Picture::resize`] computes what Pillow computes, and [`Processor`] follows the preprocessor_config.json of
//! a checkpoint. What a model says of a picture is drawn on it ([`Picture::frame`], [`Picture::tint`]).

mod draw;
mod picture;
mod processor;
mod resize;

use std::path::PathBuf;

use planish_files::FileError;

pub use draw::{Colour, colour_of, gray_png, gray_png_of_bytes};
pub use picture::{ENDINGS, MAX_PIXELS, Picture, is_picture};
pub use processor::{FILES, Grid, InGraph, Pixels, Prepared, Processor, ResizedTo, Tiles, fit};
pub use resize::Filter;

/// A picture, or what says how pictures are processed, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] FileError),
    /// What it holds is malformed or not supported.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
}
