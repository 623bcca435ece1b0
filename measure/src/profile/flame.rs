//! A flame graph: modules from the top down, each as wide as its time.

use std::fmt::Write;

use super::{ModuleTime, Profile};
use crate::inspect::escaped;

/// Pixels: the width of the whole, the height of a row, the edges.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const MARGIN: f64 = 10.0;

/// Pixels that a character takes at the size of the text.
const CHARACTER: f64 = 7.0;

/// What is narrower than this, in pixels, is not drawn.
const NARROWEST: f64 = 0.2;

/// A drawing in SVG: for each part a row of the whole, below it rows of modules, and operators below the modules that they
/// are in. Pointing at a box shows its full name, its time and its share.
#[must_use]
pub fn flame(profile: &Profile) -> String {
    let mut drawing = Drawing { text: String::new(), all: 0.0, bottom: MARGIN };
    for part in &profile.parts {
        let top = drawing.bottom;
        drawing.all = part.modules.total_ms;
        let scale = (WIDTH - 2.0 * MARGIN) / part.modules.total_ms.max(f64::MIN_POSITIVE);
        let label = format!("{}: {:.3} ms", part.name, part.modules.total_ms);
        drawing.module(&part.modules, &label, &part.name, (MARGIN, top), scale);
        drawing.bottom += MARGIN;
    }
    let height = drawing.bottom;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        drawing.text
    )
}

struct Drawing {
    text: String,
    /// The time of the part.
    all: f64,
    /// The end of the lowest row.
    bottom: f64,
}

impl Drawing {
    fn module(&mut self, module: &ModuleTime, label: &str, path: &str, (x, y): (f64, f64), scale: f64) {
        if !self.rectangle(label, path, module.total_ms, (x, y), scale, "#f2b36b") {
            return;
        }
        let (mut x, y) = (x, y + ROW);
        for child in &module.modules {
            let path = if module.name.is_empty() { child.name.clone() } else { format!("{path}.{}", child.name) };
            // A number tells nothing without the name in front of it.
            let is_number = child.name.bytes().all(|b| b.is_ascii_digit());
            let label = if is_number { format!("{}.{}", module.name, child.name) } else { child.name.clone() };
            self.module(child, &label, &path, (x, y), scale);
            x += child.total_ms * scale;
        }
        for (operator, time) in &module.operators {
            self.rectangle(operator, &format!("{path} {operator}"), *time, (x, y), scale, "#9cc3e6");
            x += time * scale;
        }
    }

    /// Draws a box; answers whether it is wide enough.
    fn rectangle(&mut self, label: &str, path: &str, time: f64, (x, y): (f64, f64), scale: f64, fill: &str) -> bool {
        let width = time * scale;
        if width < NARROWEST {
            return false;
        }
        self.bottom = self.bottom.max(y + ROW);
        let share = time / self.all.max(f64::MIN_POSITIVE) * 100.0;
        let title = escaped(&format!("{path}: {time:.3} ms, {share:.1}%"));
        // Writing into a string does not fail; so below.
        let _ = write!(
            self.text,
            "<g><title>{title}</title><rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{:.1}\" fill=\"{fill}\" \
             stroke=\"white\" stroke-width=\"0.5\"/>",
            ROW - 1.0
        );
        let room = ((width - 4.0) / CHARACTER).max(0.0) as usize;
        if room >= 2 {
            let shown: String = label.chars().take(room).collect();
            let _ =
                write!(self.text, "<text x=\"{:.2}\" y=\"{:.1}\">{}</text>", x + 3.0, y + ROW - 5.5, escaped(&shown));
        }
        self.text += "</g>\n";
        true
    }
}
