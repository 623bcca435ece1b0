//! The report of a benchmark: one page of HTML that needs nothing else, neither other files nor scripts; and a table as CSV.
//!
//! view.rs sorts the cells of documents by contestants and by what they run; sections.rs makes plots of them and tables.rs
//! tables. A plot (plots/) is a function of its points that gives SVG; scale.rs and axes.rs have scales, ticks and axes. The
//! rest of the page is in templates/, which escape all text.

mod axes;
mod csv;
mod page;
mod plots;
mod scale;
mod sections;
mod svg;
mod tables;
pub(super) mod view;

pub use csv::csv;
pub use page::html;
