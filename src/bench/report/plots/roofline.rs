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
    /// The operations for each byte from which on the operations are the limit.
    fn ridge(&self) -> f64 {
        self.peaks.tflops * 1e3 / self.peaks.gb_s
    }

    /// What it allows at so many operations for each byte, in units of 10^12 a second.
    fn at(&self, intensity: f64) -> f64 {
        (intensity * self.peaks.gb_s / 1e3).min(self.peaks.tflops)
    }
}

/// Marks below the roofs, in a drawing of this size; `None` without a point or a roof.
pub(in super::super) fn roofline(name: &Name<'_>, size: [f64; 2], roofs: &[Roof], points: &[Point]) -> Option<String> {
    let usable = |roof: &&Roof| [roof.peaks.tflops, roof.peaks.gb_s].iter().all(|v| v.is_finite() && *v > 0.0);
    let roofs: Vec<&Roof> = roofs.iter().filter(usable).collect();
    if points.is_empty() || roofs.is_empty() {
        return None;
    }
    let xs = points.iter().map(|p| p.x).chain(roofs.iter().flat_map(|roof| [roof.ridge() / 3.0, roof.ridge() * 3.0]));
    let ys = points
        .iter()
        .map(|p| p.y)
        .chain(roofs.iter().flat_map(|roof| [roof.peaks.tflops * 1.4, roof.peaks.tflops / 4.0]));
    let axes = Axes::new(size, Scale::logarithmic(xs), Scale::logarithmic(ys));
    let mut svg = Svg::new(size[0], size[1]);
    axes.draw(&mut svg, "FLOP for each byte", "TFLOP/s");
    let [low, high] = axes.x.domain();
    for roof in &roofs {
        // From where the slope comes in at the bottom.
        let start = low.max(axes.y.domain()[0] * 1e3 / roof.peaks.gb_s).min(high);
        let ridge = roof.ridge().clamp(start, high);
        let corners = [start, ridge, high].map(|x| axes.at(x, roof.at(x)));
        svg.polyline("roof", &corners);
        let label = |text: String| if roof.label.is_empty() { text } else { format!("{}: {text}", roof.label) };
        let peak = label(format!("peak of a matrix product {} TFLOP/s", significant(roof.peaks.tflops)));
        svg.text(axes.right, corners[2][1] - 6.0, "roof-name end", &peak);
        let [[x1, y1], [x2, y2], _] = corners;
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
        Roof { label: String::new(), peaks: Peaks { tflops, gb_s, threads: 2 } }
    }

    #[test]
    fn the_roof_bends_where_both_limits_meet() {
        let roof = roof(0.2, 20.0);
        assert_eq!((roof.ridge(), roof.at(1.0), roof.at(10.0), roof.at(1e6)), (10.0, 0.02, 0.2, 0.2));
    }

    #[test]
    fn marks_are_drawn_below_the_roof() {
        for size in [SMALL, LARGE] {
            let svg = roofline(&NAME, size, &[roof(0.2, 20.0)], &[point(30.0, 0.15), point(1.0, 0.01)]).unwrap();
            check(&svg, 2);
            assert!(svg.contains("peak of a matrix product 0.200 TFLOP/s") && svg.contains("copy 20.0 GB/s"), "{svg}");
        }
        assert!(roofline(&NAME, SMALL, &[roof(0.2, 20.0)], &[]).is_none());
        for (tflops, gb_s) in [(0.0, 1.0), (1.0, f64::NAN), (1.0, f64::INFINITY)] {
            assert!(roofline(&NAME, SMALL, &[roof(tflops, gb_s)], &[point(1.0, 1.0)]).is_none());
        }
        check(&roofline(&NAME, SMALL, &[roof(1e-9, 1e9)], &[point(1e9, 1e-12)]).unwrap(), 1);
    }
}
