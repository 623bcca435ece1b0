//! The heights and widths of images that a model is compiled for.

use super::Config;

impl Config<'_> {
    /// Sets heights and widths of images: what the caller asks for, and what pictures become.
    pub(crate) fn set_sizes_of_images(&mut self, asked: Option<[usize; 2]>, pictures: Option<[usize; 2]>) {
        self.images = [asked, pictures];
    }

    /// These sizes, which the caller follows.
    pub(crate) fn sizes_of_images(&self) -> (Option<[usize; 2]>, Option<[usize; 2]>) {
        self.is_resizable.set(true);
        (self.images[0], self.images[1])
    }

    /// The size that the caller asks for, if nothing follows it.
    pub(crate) fn unused_size_of_images(&self) -> Option<[usize; 2]> {
        self.images[0].filter(|_| !self.is_resizable.get())
    }
}
