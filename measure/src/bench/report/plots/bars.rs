//! Horizontal bars, each below its name, of one or several segments.

use super::super::axes::draw_ticks;
use super::super::scale::Scale;
use super::super::svg::{Svg, fitted, width};
use super::{Name, SMALL, words};

/// Pixels of a bar with its name, of the name alone, and of the bar.
const ROW: f64 = 33.0;
const NAMED: f64 = 14.0;
const THICK: f64 = 12.0;

/// A bar.
pub(in super::super) struct Bar {
    /// What it is of.
    pub(in super::super) label: String,
    /// Its value, in words.
    pub(in super::super) text: String,
    /// One after the other; none for what has no value.
    pub(in super::super) segments: Vec<Segment>,
    /// The interval that the value is in.
    pub(in super::super) ci95: Option<[f64; 2]>,
}

/// A part of a bar.
pub(in super::super) struct Segment {
    /// The class of its colour.
    pub(in super::super) class: String,
    pub(in super::super) value: f64,
    /// What is written on it, where there is room.
    pub(in super::super) text: String,
    pub(in super::super) tip: String,
}

/// Bars from zero on, with a line at `base`; `None` where no bar has a value.
pub(in super::super) fn bars(name: &Name<'_>, unit: &str, base: Option<f64>, rows: &[Bar]) -> Option<String> {
    let total = |bar: &Bar| bar.segments.iter().map(|of| of.value).sum::<f64>();
    if rows.iter().all(|bar| bar.segments.is_empty()) {
        return None;
    }
    let values = rows.iter().flat_map(|bar| [total(bar), bar.ci95.map_or(0.0, |of| of[1])]);
    let bottom = rows.len() as f64 * ROW + 4.0;
    let x = Scale::linear(values.chain(base).chain([0.0])).between(2.0, SMALL[0] - 16.0);
    let mut svg = Svg::new(SMALL[0], bottom + 36.0);
    draw_ticks(&mut svg, &x, [4.0, bottom]);
    svg.text(SMALL[0] - 2.0, bottom + 31.0, "what end", unit);
    let base = base.map(|base| x.at(base));
    if let Some(at) = base {
        svg.line("base", [at, 4.0], [at, bottom]);
    }
    for (index, bar) in rows.iter().enumerate() {
        let top = index as f64 * ROW + 4.0;
        let room = SMALL[0] - 18.0 - width(&bar.text);
        svg.text(2.0, top + NAMED - 3.0, "name", &fitted(&bar.label, room));
        svg.text(
            SMALL[0] - 2.0,
            top + NAMED - 3.0,
            if bar.segments.is_empty() { "none end" } else { "value end" },
            &bar.text,
        );
        let mut from = 0.0;
        for of in &bar.segments {
            let (left, right) = (x.at(from), x.at(from + of.value));
            // A bar of nothing can be seen and pointed at too.
            svg.bar(&of.class, [left, top + NAMED], [(right - left).max(1.0), THICK], &of.tip);
            if !of.text.is_empty() && width(&of.text) + 4.0 <= right - left {
                svg.text((left + right) / 2.0, top + NAMED + 9.2, "in", &of.text);
            }
            from += of.value;
        }
        if let Some([low, high]) = bar.ci95.map(|ends| ends.map(|end| x.at(end))) {
            let middle = top + NAMED + THICK / 2.0;
            svg.line("whisker", [low, middle], [high, middle]);
            [low, high].into_iter().for_each(|end| svg.line("whisker", [end, middle - 4.0], [end, middle + 4.0]));
        }
    }
    let tips = rows.iter().flat_map(|bar| &bar.segments).map(|of| of.tip.as_str());
    Some(svg.finish(name.id, "bars", name.title, &words(tips)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NAME, check};
    use super::*;

    fn bar(values: &[f64]) -> Bar {
        let segment = |value: &f64| {
            let [class, text, tip] = ["c1", "<s>", "tip"].map(str::to_owned);
            Segment { class, value: *value, text, tip }
        };
        let segments: Vec<Segment> = values.iter().map(segment).collect();
        Bar { label: "<a>".to_owned(), text: "2.0".to_owned(), segments, ci95: Some([1.9, 2.1]) }
    }

    #[test]
    fn bars_have_segments_and_intervals() {
        let svg = bars(&NAME, "times", Some(1.0), &[bar(&[2.0]), bar(&[]), bar(&[1.0, 0.0])]).unwrap();
        check(&svg, 3);
        assert_eq!(svg.matches("whisker").count(), 9);
        assert_eq!((svg.matches("class=\"base\"").count(), svg.matches("class=\"none end\"").count()), (1, 1));
        // The narrow segment has no text.
        assert_eq!(svg.matches(">&lt;s&gt;<").count(), 2, "{svg}");
        assert!(bars(&NAME, "times", None, &[bar(&[])]).is_none());
        check(&bars(&NAME, "times", None, &[Bar { ci95: None, ..bar(&[0.0]) }]).unwrap(), 1);
    }
}
