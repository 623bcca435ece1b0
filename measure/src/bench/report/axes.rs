//! The axes of a plot: lines at the ticks, their texts, and what is counted.

use super::scale::Scale;
use super::svg::{Svg, width};

/// Pixels above the plot, where the text of the vertical axis is, and below it, where that of the horizontal one is.
const ABOVE: f64 = 30.0;
const BELOW: f64 = 38.0;
/// Pixels at the right, for half of the last tick's text or half of a mark.
const RIGHT: f64 = 24.0;

/// Two axes.
pub(super) struct Axes {
    pub(super) x: Scale,
    pub(super) y: Scale,
    /// The pixels of the plot between them.
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Axes {
    /// Axes in a drawing of this size.
    pub(super) fn new([full_width, full_height]: [f64; 2], x: Scale, y: Scale) -> Self {
        let widest = y.ticks().iter().map(|(_, text)| width(text)).fold(0.0, f64::max);
        let (left, right, top, bottom) = (widest + 10.0, full_width - RIGHT, ABOVE, full_height - BELOW);
        Self { x: x.between(left, right), y: y.between(bottom, top), left, right, top, bottom }
    }

    /// Draws them, each with what it counts.
    pub(super) fn draw(&self, svg: &mut Svg, x: &str, y: &str) {
        let mut last = f64::MAX;
        for (at, text) in self.y.ticks() {
            svg.line("grid", [self.left, at], [self.right, at]);
            if last - at >= 12.0 {
                svg.text(self.left - 6.0, at + 3.5, "tick end", &text);
                last = at;
            }
        }
        draw_ticks(svg, &self.x, [self.top, self.bottom]);
        svg.line("axis", [self.left, self.bottom], [self.right, self.bottom]);
        svg.text(2.0, 12.0, "what", y);
        svg.text(self.right + RIGHT - 2.0, self.bottom + 33.0, "what end", x);
    }

    /// Where a point is.
    pub(super) fn at(&self, x: f64, y: f64) -> [f64; 2] {
        [self.x.at(x), self.y.at(y)]
    }
}

/// Draws the ticks of a horizontal scale between two heights: their texts below where they do not overlap.
pub(super) fn draw_ticks(svg: &mut Svg, x: &Scale, [top, bottom]: [f64; 2]) {
    let mut last = -6.0;
    for (at, text) in x.ticks() {
        svg.line("grid", [at, top], [at, bottom]);
        let half = width(&text) / 2.0;
        let middle = at.max(half);
        if middle - half >= last + 6.0 {
            svg.text(middle, bottom + 15.0, "tick middle", &text);
            last = middle + half;
        }
    }
}
