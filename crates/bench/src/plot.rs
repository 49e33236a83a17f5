//! Plots as SVG: lines over a logarithmic or linear axis, and bars.
//!
//! 1. A plot is a whole file that a browser and GitHub show, without scripts or fonts of its own.
//! 2. Text is escaped, and a point that no axis can show (zero on a logarithmic one) is left out.

use std::fmt::Write as _;

/// The size of a plot, and of its margins, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// The number of intervals between the marks of a linear axis, at most.
const MARKS: f64 = 6.0;
/// The number of groups of bars from which their labels are in two rows.
const CROWD: usize = 9;
/// The space of a group of bars that stays empty.
const GAP: f64 = 0.25;

/// Colours that stay distinct with colour blindness.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Begins at zero.
    Linear,
    /// Begins at the least value.
    Logarithmic,
}

/// An axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// The label, with the unit.
    pub(crate) label: String,
    /// The scale.
    pub(crate) scale: Scale,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// The name in the legend.
    pub(crate) name: String,
    /// The points, in order of the first coordinate.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Returns a plot of lines; `None` if there is no point to show.
pub(crate) fn lines(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> Option<String> {
    let shown = |(a, b): &(f64, f64)| x.shows(*a) && y.shows(*b);
    let points = || series.iter().flat_map(|one| &one.points).filter(|it| shown(it));
    let across = x.range(points().map(|point| point.0), LEFT, WIDTH - RIGHT)?;
    let up = y.range(points().map(|point| point.1), HEIGHT - BOTTOM, TOP)?;
    let mut svg = begin(title);
    frame(&mut svg, &x.label, &y.label);
    for mark in across.marks() {
        let at = across.place(mark);
        text(&mut svg, at, HEIGHT - BOTTOM + 18.0, "middle", &number(mark));
    }
    marks_up(&mut svg, &up);
    for (index, one) in series.iter().enumerate() {
        let places: Vec<_> = one.points.iter().filter(|it| shown(it)).collect();
        if places.is_empty() {
            continue;
        }
        let place =
            |point: &&(f64, f64)| format!("{:.1},{:.1}", across.place(point.0), up.place(point.1));
        let path: Vec<_> = places.iter().map(place).collect();
        let colour = colour(index);
        let _ = writeln!(
            svg,
            r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points="{}"/>"#,
            path.join(" ")
        );
        legend(&mut svg, index, &one.name);
    }
    Some(end(svg))
}

/// Returns a plot of groups of bars, one for each name; `None` if there is no bar to show. A group
/// has a label, and a value for each name, if it is known.
pub(crate) fn bars(
    title: &str,
    label: &str,
    names: &[&str],
    groups: &[(String, Vec<Option<f64>>)],
) -> Option<String> {
    let y = Axis { label: label.to_owned(), scale: Scale::Linear };
    let values = groups.iter().flat_map(|group| &group.1).filter_map(|value| *value);
    let up = y.range(values.filter(|value| y.shows(*value)), HEIGHT - BOTTOM, TOP)?;
    let mut svg = begin(title);
    frame(&mut svg, "", label);
    marks_up(&mut svg, &up);
    let group_width = (WIDTH - LEFT - RIGHT) / float(groups.len());
    let width = group_width * (1.0 - GAP) / float(names.len());
    for (index, (label, values)) in groups.iter().enumerate() {
        let left = LEFT + group_width * (float(index) + GAP / 2.0);
        let middle = LEFT + group_width * (float(index) + 0.5);
        let row = if groups.len() >= CROWD { float(index % 2) } else { 0.0 };
        text(&mut svg, middle, HEIGHT - BOTTOM + 18.0 + 14.0 * row, "middle", label);
        for (bar, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| y.shows(*value)) else { continue };
            let x = left + width * float(bar);
            let top = up.place(value);
            let height = HEIGHT - BOTTOM - top;
            let colour = colour(bar);
            let _ = write!(svg, r#"<rect x="{x:.1}" y="{top:.1}" width="{width:.1}" "#);
            let _ = writeln!(svg, r#"height="{height:.1}" fill="{colour}"/>"#);
        }
    }
    for (index, name) in names.iter().enumerate() {
        legend(&mut svg, index, name);
    }
    Some(end(svg))
}

impl Axis {
    /// Returns true if the axis can show a value.
    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || (value == 0.0 && self.scale == Scale::Linear))
    }

    /// Returns the range of some values, between two places; `None` if there are no values.
    fn range(&self, values: impl Iterator<Item = f64>, first: f64, last: f64) -> Option<Range> {
        let values: Vec<_> = values.collect();
        let max = values.iter().copied().reduce(f64::max)?;
        let min = values.iter().copied().reduce(f64::min)?;
        let scale = self.scale;
        let (low, high) = match scale {
            Scale::Linear if max == 0.0 => (0.0, 1.0),
            Scale::Linear => (0.0, max * 1.05),
            Scale::Logarithmic if max > min => (min, max),
            Scale::Logarithmic => (min / 2.0, max * 2.0),
        };
        Some(Range { scale, low, high, first, last })
    }
}

/// The values between two places.
struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    first: f64,
    last: f64,
}

impl Range {
    fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.first + part * (self.last - self.first)
    }

    /// Returns the values that are marked. On a logarithmic axis these are powers of ten, or of two
    /// if there are few of these.
    fn marks(&self) -> Vec<f64> {
        if self.scale == Scale::Linear {
            let step = round_step(self.high / MARKS);
            let marks = std::iter::successors(Some(0.0), |mark| Some(mark + step));
            return marks.take_while(|mark| *mark <= self.high * 1.001).collect();
        }
        let base = if self.high / self.low > 2000.0 { 10.0_f64 } else { 2.0 };
        let mut marks = Vec::new();
        let mut mark = base.powf(self.low.log(base).ceil());
        while mark <= self.high * 1.001 {
            marks.push(mark);
            mark *= base;
        }
        marks
    }
}

/// Returns the least of 1, 2 and 5, times a power of ten, that is no less than `least`.
fn round_step(least: f64) -> f64 {
    let power = 10.0_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * 0.999).unwrap_or(steps[3])
}

fn begin(title: &str) -> String {
    let mut svg = r#"<svg xmlns="http://www.w3.org/2000/svg" "#.to_owned();
    let _ = write!(svg, r#"width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" "#);
    svg.push_str("font-family=\"sans-serif\" font-size=\"12\">\n");
    svg.push_str("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    text(&mut svg, LEFT, TOP - 16.0, "start", title);
    svg
}

fn end(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

fn frame(svg: &mut String, x: &str, y: &str) {
    let width = WIDTH - LEFT - RIGHT;
    let height = HEIGHT - TOP - BOTTOM;
    let _ = write!(svg, r#"<rect x="{LEFT}" y="{TOP}" width="{width}" height="{height}" "#);
    svg.push_str("fill=\"none\" stroke=\"#888888\"/>\n");
    text(svg, LEFT + width / 2.0, HEIGHT - 12.0, "middle", x);
    let middle = TOP + height / 2.0;
    let turned = format!("rotate(-90 16 {middle})");
    let _ = write!(svg, r#"<text x="16" y="{middle}" text-anchor="middle" "#);
    let _ = writeln!(svg, r#"transform="{turned}">{}</text>"#, escaped(y));
}

fn marks_up(svg: &mut String, up: &Range) {
    let right = WIDTH - RIGHT;
    for mark in up.marks() {
        let at = up.place(mark);
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" y1="{at:.1}" x2="{right}" y2="{at:.1}" stroke="#dddddd"/>"##
        );
        text(svg, LEFT - 6.0, at + 4.0, "end", &number(mark));
    }
}

fn legend(svg: &mut String, index: usize, name: &str) {
    let x = WIDTH - RIGHT + 12.0;
    let y = TOP + 14.0 + 20.0 * float(index);
    let top = y - 10.0;
    let colour = colour(index);
    let _ = writeln!(svg, r#"<rect x="{x}" y="{top}" width="12" height="12" fill="{colour}"/>"#);
    text(svg, x + 18.0, y, "start", name);
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Returns a value with about three digits.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 || value == 0.0 => {
            format!("{value:.1}").trim_end_matches(".0").to_owned()
        }
        value => format!("{value:.3}"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn float(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale) -> Axis {
        Axis { label: "a < b & \"c\"".to_owned(), scale }
    }

    fn series(points: &[(f64, f64)]) -> Series {
        Series { name: "one & <two>".to_owned(), points: points.to_vec() }
    }

    /// Checks that elements are closed in order, attributes are quoted, and text is escaped.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some(start) = rest.find('<') {
            assert_text(&rest[..start]);
            let length = rest[start..].find('>').expect("a tag is closed");
            let tag = &rest[start + 1..start + length];
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{tag}");
            } else if !tag.ends_with('/') {
                open.push(tag.split([' ', '\n']).next().unwrap());
            }
            rest = &rest[start + length + 1..];
        }
        assert_text(rest);
        assert_eq!(open, [""; 0]);
    }

    fn assert_text(text: &str) {
        assert!(!text.contains(['>', '"']), "{text}");
        for part in text.split('&').skip(1) {
            let is_known = ["amp;", "lt;", "gt;", "quot;"].iter().any(|it| part.starts_with(it));
            assert!(is_known, "{text}");
        }
    }

    #[test]
    fn lines_are_well_formed_and_each_has_its_points() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let both = [series(&[(1.0, 10.0), (16.0, 20.0), (1024.0, 0.5)]), series(&[(2.0, 5.0)])];
            let svg = lines("a & b", &axis(Scale::Logarithmic), &axis(scale), &both).unwrap();
            assert_well_formed(&svg);
            assert_eq!(svg.matches("<polyline").count(), 2);
            let first = svg.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            let places: Vec<_> = first.split(' ').collect();
            assert_eq!(places.len(), 3);
            assert!(places[0].starts_with("70.0,") && places[2].starts_with("550.0,"), "{first}");
        }
    }

    #[test]
    fn point_that_an_axis_cannot_show_is_left_out() {
        let x = axis(Scale::Linear);
        let y = axis(Scale::Logarithmic);
        let svg = lines("", &x, &y, &[series(&[(1.0, 0.0), (0.0, 3.0), (2.0, f64::NAN)])]).unwrap();
        assert_well_formed(&svg);
        assert!(svg.contains("points=\"70.0,"), "{svg}");
        assert_eq!(lines("", &x, &y, &[series(&[(1.0, 0.0)])]), None);
        assert_eq!(lines("", &x, &y, &[]), None);
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let groups =
            [("S<0>".to_owned(), vec![Some(1.0), None]), ("S1".to_owned(), vec![Some(2.0); 2])];
        let svg = bars("t", "times", &["ours", "published"], &groups).unwrap();
        assert_well_formed(&svg);
        let heights = svg.lines().filter_map(|line| line.split("height=\"").nth(1));
        let heights: Vec<f64> =
            heights.filter_map(|it| it.split('"').next().unwrap().parse().ok()).collect();
        let high = (HEIGHT - TOP - BOTTOM) / 1.05;
        let is = |wanted: f64| heights.iter().filter(|it| (**it - wanted).abs() < 0.1).count();
        assert_eq!((is(high), is(high / 2.0)), (2, 1), "{heights:?}");
        assert_eq!(bars("t", "times", &["ours"], &[("S0".to_owned(), vec![None])]), None);
    }

    #[test]
    fn marks_of_a_logarithmic_axis_are_powers() {
        let marks = |low, high| {
            let range = Range { scale: Scale::Logarithmic, low, high, first: 0.0, last: 1.0 };
            range.marks().iter().map(|mark| number(*mark)).collect::<Vec<_>>()
        };
        assert_eq!(marks(1.0, 16.0), ["1", "2", "4", "8", "16"]);
        assert_eq!(marks(0.05, 1000.0), ["0.100", "1", "10", "100", "1000"]);
    }

    #[test]
    fn marks_of_a_linear_axis_are_round() {
        let marks = |high| {
            let range = Range { scale: Scale::Linear, low: 0.0, high, first: 0.0, last: 1.0 };
            range.marks().iter().map(|mark| number(*mark)).collect::<Vec<_>>()
        };
        assert_eq!(marks(136.0), ["0", "50", "100"]);
        assert_eq!(marks(1.7), ["0", "0.500", "1", "1.5"]);
        assert_eq!(marks(105.0), ["0", "20", "40", "60", "80", "100"]);
    }
}
