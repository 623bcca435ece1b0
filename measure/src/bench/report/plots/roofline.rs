//! The roofline model: operations a second by operations for each byte, below what the machine can do.

use super::super::super::figures::Peaks;
use super::super::super::table::significant;
use super::super::axes::Axes;
use super::super::scale::Scale;
use super::super::svg::Svg;
use super::{Name, Point, words};

/// What a machine can do at most.
pub(in super::super) struct Roof {
    /// The machine, where there are several.
    pub(in super::super) label: String,
    pub(in super::super) peaks: Peaks,
}

impl Roof {
    /// The operations for each byte from which on the operations are the limit, of a peak of them.
    fn ridge(&self, peak: f64) -> f64 {
        peak * 1e3 / self.peaks.gb_s
    }

    /// The operations a second that the memory allows at so many for each byte, in units of 10^12, and at most this peak.
    fn at(&self, intensity: f64, peak: f64) -> f64 {
        (intensity * self.peaks.gb_s / 1e3).min(peak)
    }
}

/// Marks below the roofs, in a drawing of this size; `None` without a point or a roof.
pub(in super::super) fn roofline(name: &Name<'_>, size: [f64; 2], roofs: &[Roof], points: &[Point]) -> Option<String> {
    let positive = |v: f64| v.is_finite() && v > 0.0;
    let roofs: Vec<&Roof> =
        roofs.iter().filter(|roof| positive(roof.peaks.most(false)) && positive(roof.peaks.gb_s)).collect();
    if points.is_empty() || roofs.is_empty() {
        return None;
    }
    let int8 = |roof: &Roof| Some(roof.peaks.most(true)).filter(|peak| positive(*peak));
    let peaks = |roof: &Roof| [Some(roof.peaks.most(false)), int8(roof)].into_iter().flatten();
    let ridges = roofs.iter().flat_map(|roof| peaks(roof).map(|peak| roof.ridge(peak)));
    let xs = points.iter().map(|p| p.x).chain(ridges.flat_map(|ridge| [ridge / 3.0, ridge * 3.0]));
    let tops = roofs.iter().flat_map(|roof| peaks(roof));
    let ys = points.iter().map(|p| p.y).chain(tops.flat_map(|peak| [peak * 1.4, peak / 4.0]));
    let axes = Axes::new(size, Scale::logarithmic(xs), Scale::logarithmic(ys));
    let mut svg = Svg::new(size[0], size[1]);
    axes.draw(&mut svg, "operations for each byte, log scale", "10¹² operations/s, log scale");
    let [low, high] = axes.x.domain();
    for roof in &roofs {
        // From where the slope comes in at the bottom.
        let start = low.max(axes.y.domain()[0] * 1e3 / roof.peaks.gb_s).min(high);
        let corners = |peak| [start, roof.ridge(peak).clamp(start, high), high].map(|x| axes.at(x, roof.at(x, peak)));
        let label = |text: String| if roof.label.is_empty() { text } else { format!("{}: {text}", roof.label) };
        let flat = corners(roof.peaks.most(false));
        if let Some(peak) = int8(roof) {
            let [_, [x, _], [_, y]] = corners(peak);
            svg.polyline("roof int8", &corners(peak));
            // Off the other line and its name, which is at the right.
            let below = (y - flat[2][1]).abs() < 28.0 && y >= flat[2][1];
            let text = label(format!("INT8 {}", significant(peak)));
            svg.text(x + 6.0, if below { y + 14.0 } else { y - 6.0 }, "roof-name", &text);
        }
        svg.polyline("roof", &flat);
        let near = int8(roof).is_some_and(|peak| (0.0..28.0).contains(&(flat[2][1] - corners(peak)[2][1])));
        let text = label(format!("float32 {}", significant(roof.peaks.most(false))));
        svg.text(axes.right, flat[2][1] + if near { 14.0 } else { -6.0 }, "roof-name end", &text);
        let [[x1, y1], [x2, y2], _] = flat;
        if (x2 - x1).hypot(y2 - y1) > 100.0 {
            let angle = (y2 - y1).atan2(x2 - x1).to_degrees();
            let (x, y) = ((x1 + x2) / 2.0, (y1 + y2) / 2.0);
            svg.add(format_args!("<g transform=\"translate({x:.1} {y:.1}) rotate({angle:.1})\">"));
            svg.text(0.0, -6.0, "roof-name middle", &format!("copy {} GB/s", significant(roof.peaks.gb_s)));
            svg.add(format_args!("</g>"));
        }
    }
    for point in points {
        svg.mark(point.shape, point.colour, axes.at(point.x, point.y), &point.text, &point.tip);
    }
    Some(svg.finish(name.id, "roofline", name.title, &words(points.iter().map(|p| p.tip.as_str()))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NAME, check, point};
    use super::super::{LARGE, SMALL};
    use super::*;

    fn roof(tflops: f64, gb_s: f64) -> Roof {
        Roof {
            label: String::new(),
            peaks: Peaks {
                tflops,
                int8_tops: 2.0 * tflops,
                gb_s,
                threads: 2,
                reached_tflops: None,
                reached_int8_tops: None,
            },
        }
    }

    #[test]
    fn the_roof_bends_where_both_limits_meet() {
        let roof = roof(0.2, 20.0);
        assert_eq!([roof.ridge(0.2), roof.at(1.0, 0.2), roof.at(10.0, 0.2), roof.at(1e6, 0.2)], [10.0, 0.02, 0.2, 0.2]);
    }

    #[test]
    fn marks_are_drawn_below_the_roof() {
        for size in [SMALL, LARGE] {
            let svg = roofline(&NAME, size, &[roof(0.2, 20.0)], &[point(30.0, 0.15), point(1.0, 0.01)]).unwrap();
            check(&svg, 2);
            assert!(
                svg.contains("float32 0.200<") && svg.contains("INT8 0.400<") && svg.contains("copy 20.0 GB/s"),
                "{svg}"
            );
        }
        assert!(roofline(&NAME, SMALL, &[roof(0.2, 20.0)], &[]).is_none());
        for (tflops, gb_s) in [(0.0, 1.0), (1.0, f64::NAN), (1.0, f64::INFINITY)] {
            assert!(roofline(&NAME, SMALL, &[roof(tflops, gb_s)], &[point(1.0, 1.0)]).is_none());
        }
        check(&roofline(&NAME, SMALL, &[roof(1e-9, 1e9)], &[point(1e9, 1e-12)]).unwrap(), 1);
    }
}
