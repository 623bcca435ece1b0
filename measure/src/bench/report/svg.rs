//! Text of SVG. Colours, fonts and line widths are classes, which the page's style sheet has for light and dark.

use std::fmt::{self, Write};

/// Pixels of a letter of the plots' text, about: digits and small letters are narrower, capitals wider.
const LETTER: f64 = 6.1;

/// How the marks of a contestant look; the shape is that of its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Diamond,
    Hexagon,
}

impl Shape {
    /// The shape of a runtime by its place among those of a report; after the last, the first comes again.
    pub(super) fn of(runtime: usize) -> Self {
        [Self::Circle, Self::Square, Self::Diamond, Self::Hexagon][runtime % 4]
    }
}

/// How many colours there are for contestants, and for operators: classes `c0`, ... and `o0`, ...
pub(super) const COLOURS: usize = 8;

/// A drawing.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// Adds elements.
    pub(super) fn add(&mut self, elements: fmt::Arguments<'_>) {
        // Writing into a string does not fail.
        let _ = self.body.write_fmt(elements);
        self.body.push('\n');
    }

    /// Adds a text; `class` has its anchor and its size.
    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.add(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text)));
    }

    /// Adds a line.
    pub(super) fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        self.add(format_args!("<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"));
    }

    /// Adds a line through points.
    pub(super) fn polyline(&mut self, class: &str, points: &[[f64; 2]]) {
        let mut path = String::new();
        for (at, [x, y]) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
        }
        self.add(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    /// Adds a bar with a tooltip.
    pub(super) fn bar(&mut self, class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2], tip: &str) {
        self.add(format_args!(
            "<rect class=\"mark {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"1.5\">\
             <title>{}</title></rect>",
            escaped(tip)
        ));
    }

    /// Adds a mark with a text in it and a tooltip.
    pub(super) fn mark(&mut self, shape: Shape, colour: usize, [x, y]: [f64; 2], text: &str, tip: &str) {
        let r = 8.0 + (text.chars().count().saturating_sub(2)) as f64 * 2.0;
        let form = match shape {
            Shape::Circle => format!("<ellipse cx=\"{x:.1}\" cy=\"{y:.1}\" rx=\"{r}\" ry=\"8\"/>"),
            Shape::Square => {
                let (left, top, width) = (x - r + 0.5, y - 7.5, 2.0 * r - 1.0);
                format!("<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width}\" height=\"15\" rx=\"2\"/>")
            }
            Shape::Diamond => polygon([x, y], &[[-r - 2.0, 0.0], [0.0, -10.0], [r + 2.0, 0.0], [0.0, 10.0]]),
            Shape::Hexagon => {
                let half = r / 2.0;
                let corners = [[-r - 1.0, 0.0], [-half, -8.5], [half, -8.5], [r + 1.0, 0.0], [half, 8.5], [-half, 8.5]];
                polygon([x, y], &corners)
            }
        };
        self.add(format_args!("<g class=\"mark m c{}\"><title>{}</title>{form}", colour % COLOURS, escaped(tip)));
        self.text(x, y + 3.1, "in", text);
        self.body.push_str("</g>\n");
    }

    /// The drawing, of something that stands beside it in words.
    pub(super) fn decoration(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg class=\"chip\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" aria-hidden=\"true\">{body}</svg>"
        )
    }

    /// The drawing, with what it shows in words for who cannot see it. `id` is unique on the page.
    pub(super) fn finish(self, id: &str, class: &str, title: &str, description: &str) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg class=\"plot {class}\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
             role=\"img\" aria-labelledby=\"{id}-title {id}-desc\"><title id=\"{id}-title\">{}</title>\
             <desc id=\"{id}-desc\">{}</desc>\n{body}</svg>",
            escaped(title),
            escaped(description)
        )
    }
}

fn polygon([x, y]: [f64; 2], corners: &[[f64; 2]]) -> String {
    let points: Vec<String> = corners.iter().map(|[dx, dy]| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
    format!("<polygon points=\"{}\"/>", points.join(" "))
}

/// The pixels that a text takes, about.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_ascii() { LETTER } else { 2.0 * LETTER }).sum()
}

/// The text, without its middle where it takes more than so many pixels: names often differ at the end.
pub(super) fn fitted(text: &str, pixels: f64) -> String {
    if width(text) <= pixels {
        return text.to_owned();
    }
    let mut letters: Vec<char> = text.chars().collect();
    while letters.len() > 2 && width(&letters.iter().collect::<String>()) + LETTER > pixels {
        letters.remove(letters.len() / 3);
    }
    letters.insert(letters.len() / 3, '…');
    letters.into_iter().collect()
}

/// Text in an element or an attribute of XML, which has no control characters.
pub(super) fn escaped(text: &str) -> String {
    let legal = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let text: String = text.chars().map(legal).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text(0.0, 0.0, "t", "<script>\u{0}&\"");
        svg.bar("c0", [0.0; 2], [1.0; 2], "</title><b>");
        svg.mark(Shape::Circle, 9, [5.0; 2], "<i>", "<u>");
        let text = svg.finish("a", "", "<x>", "<y>");
        assert!(text.contains("&lt;script&gt;\u{fffd}&amp;&quot;"), "{text}");
        for tag in ["<script", "<b>", "<i>", "<u>", "<x>", "<y>"] {
            assert!(!text.contains(tag), "{tag}: {text}");
        }
        assert!(text.contains("class=\"mark m c1\""), "{text}");
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(fitted("short", 100.0), "short");
        let name = "a-very-long-name-of-an-artifact-that-ends-in-int8";
        let shown = fitted(name, 150.0);
        assert!(shown.starts_with("a-very") && shown.ends_with("int8") && shown.contains('…'), "{shown}");
        assert!(width(&shown) <= 156.1, "{shown}");
        assert_eq!(fitted("名前名前名前名前", 40.0).chars().count(), 3);
    }
}
