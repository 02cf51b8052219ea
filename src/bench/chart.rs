//! The outcome as a picture: how much faster or slower Trellis is in each case, and what it costs.
//!
//! Two bars a case from the line of equality, on a logarithmic scale: throughput, and CPU time per command.
//! SVG text of our own; nothing of it depends on a library or a font.

use std::fmt::Write;

use super::report::{Report, figure};

/// All lengths in pixels of the picture at its natural size.
const ROW: f64 = 34.0;
const BAR: f64 = 12.0;
const TOP: f64 = 86.0;
const NAMES: f64 = 210.0;
const SCALE: f64 = 560.0;
const MARGIN: f64 = 70.0;

const THROUGHPUT: &str = "#2b6cb0";
const CPU: &str = "#c08a2e";

pub fn svg(report: &Report) -> String {
    let ratios: Vec<[f64; 2]> =
        report.cases.iter().map(|case| [case.ratios.throughput, case.ratios.cpu]).collect();
    let scale = Scale::over(ratios.iter().flatten().copied());
    let (width, height) = (NAMES + SCALE + MARGIN, TOP + ROW * ratios.len() as f64 + 20.0);
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("a string takes any text");
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
    ));
    line(format!("<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"));
    line(
        "<text x=\"14\" y=\"24\" font-size=\"16\">Trellis beside beanstalkd 1.13: ratios, logarithmic</text>"
            .into(),
    );
    for (x, colour, name) in [
        (14.0, THROUGHPUT, "throughput (right is better)"),
        (220.0, CPU, "CPU time per command (left is better)"),
    ] {
        line(format!("<rect x=\"{x}\" y=\"38\" width=\"{BAR}\" height=\"{BAR}\" fill=\"{colour}\"/>"));
        line(format!("<text x=\"{}\" y=\"48\">{name}</text>", x + BAR + 6.0));
    }
    for mark in scale.marks() {
        let x = scale.at(mark);
        let (colour, stroke) = if mark == 1.0 { ("#333", 1.5) } else { ("#ddd", 1.0) };
        let (top, bottom) = (TOP - 8.0, height - 14.0);
        line(format!(
            "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"{colour}\" \
             stroke-width=\"{stroke}\"/>"
        ));
        line(format!(
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{mark}x</text>",
            top - 6.0
        ));
    }
    for (number, (case, ratios)) in report.cases.iter().zip(&ratios).enumerate() {
        let y = TOP + ROW * number as f64;
        line(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            NAMES - 10.0,
            y + 17.0,
            case.name
        ));
        for (ratio, colour, offset) in [(ratios[0], THROUGHPUT, 2.0), (ratios[1], CPU, 2.0 + BAR + 2.0)] {
            if !ratio.is_finite() || ratio <= 0.0 {
                continue;
            }
            let (from, to) = (scale.at(1.0), scale.at(ratio));
            let (left, length) = (from.min(to), (to - from).abs());
            let y = y + offset;
            line(format!(
                "<rect x=\"{left:.1}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
            ));
            let (x, anchor) = if ratio >= 1.0 { (to + 4.0, "start") } else { (to - 4.0, "end") };
            let label = figure(ratio);
            line(format!(
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\" font-size=\"10\">{label}x</text>",
                y + BAR - 2.0
            ));
        }
    }
    line("</svg>".into());
    text
}

/// From a ratio to a place. Whole powers of ten at both ends, so that marks stand on round numbers.
struct Scale {
    least: i32,
    most: i32,
}

impl Scale {
    fn over(ratios: impl Iterator<Item = f64>) -> Scale {
        let logs: Vec<f64> = ratios.filter(|r| r.is_finite() && *r > 0.0).map(f64::log10).collect();
        let least = logs.iter().copied().fold(-1.0, f64::min).floor() as i32;
        let most = logs.iter().copied().fold(1.0, f64::max).ceil() as i32;
        Scale { least, most }
    }

    fn at(&self, ratio: f64) -> f64 {
        let share = (ratio.log10() - f64::from(self.least)) / f64::from(self.most - self.least);
        NAMES + SCALE * share
    }

    fn marks(&self) -> impl Iterator<Item = f64> + use<> {
        (self.least..=self.most).map(|power| 10f64.powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_holds_every_ratio_between_its_ends() {
        let ratios = [0.003, 0.5, 1.0, 47.0];
        let scale = Scale::over(ratios.into_iter());
        assert_eq!((scale.least, scale.most), (-3, 2));
        for ratio in ratios {
            assert!((NAMES..=NAMES + SCALE).contains(&scale.at(ratio)), "{ratio}");
        }
        assert!((scale.at(0.001) - NAMES).abs() < 0.001);
        assert!((scale.at(100.0) - NAMES - SCALE).abs() < 0.001);
    }

    #[test]
    fn scale_of_nothing_has_a_middle() {
        let scale = Scale::over([f64::NAN, 0.0].into_iter());
        assert!((scale.at(1.0) - NAMES - SCALE / 2.0).abs() < 0.001);
        assert_eq!(scale.marks().collect::<Vec<_>>(), [0.1, 1.0, 10.0]);
    }
}
