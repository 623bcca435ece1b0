//! Plots: each is a function of what it shows, which gives the text of an SVG.

mod bars;
mod lines;
mod roofline;
mod scatter;

pub(super) use bars::{Bar, Segment, bars};
pub(super) use lines::{Series, lines};
pub(super) use roofline::{Roof, roofline};
pub(super) use scatter::scatter;

use super::svg::Shape;

/// Pixels of a small plot, which phones show as it is, and of a large one.
pub(super) const SMALL: [f64; 2] = [356.0, 264.0];
pub(super) const LARGE: [f64; 2] = [1080.0, 420.0];

/// What a plot is called: `id` is unique on the page.
pub(super) struct Name<'a> {
    pub(super) id: &'a str,
    pub(super) title: &'a str,
}

/// A point of a plot.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) colour: usize,
    pub(super) shape: Shape,
    /// What its mark has in it.
    pub(super) text: String,
    /// All figures of it, in words.
    pub(super) tip: String,
}

/// What a plot shows in words, from those of its points.
fn words<'a>(tips: impl Iterator<Item = &'a str>) -> String {
    tips.map(|tip| tip.replace('\n', "; ")).collect::<Vec<_>>().join(". ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a drawing are finite.
    pub(super) fn check(svg: &str, marks: usize) {
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("class=\"mark ").count(), marks, "{svg}");
        assert_eq!(svg.matches("<svg").count(), 1);
        assert!(svg.contains("<title id=\"p-title\">a &lt;title&gt;</title>"), "{svg}");
    }

    pub(super) const NAME: Name<'_> = Name { id: "p", title: "a <title>" };

    pub(super) fn point(x: f64, y: f64) -> Point {
        let [text, tip] = ["8", "a & b\n8"].map(str::to_owned);
        Point { x, y, colour: 0, shape: Shape::Circle, text, tip }
    }
}
