//! Lines over numbers, drawn in the browser by uPlot (MIT licence, `assets/uPlot.LICENSE`).

use serde::Serialize;

use crate::{COLOURS, Result, embedded};

/// Marks a graph in a page.
pub(crate) const MARK: &str = "<figure class=\"graph\">";
pub(crate) const UPLOT: &str = include_str!("../assets/uPlot.iife.min.js");
pub(crate) const STYLE: &str = include_str!("../assets/uPlot.min.css");
/// Draws each graph of the page.
pub(crate) const SCRIPT: &str = include_str!("../assets/graphs.js");

/// Height of a graph in pixels of a screen, if none is said.
const HEIGHT: u32 = 360;

/// A line of a graph: its name, and its points.
pub type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// How an axis counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// In equal steps, from zero.
    #[default]
    Linear,
    /// Each step doubles.
    Doubling,
    /// Each step is ten times the one before.
    Decades,
}

/// What a graph's axes say, and how they count.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// The graph's height in pixels.
    pub height: u32,
    /// Along the lower edge.
    pub across: &'a str,
    /// Along the left edge.
    pub up: &'a str,
    /// How the lower edge counts.
    pub across_scale: Scale,
    /// How the left edge counts.
    pub up_scale: Scale,
}

impl<'a> Axes<'a> {
    /// Two linear axes.
    pub fn new(across: &'a str, up: &'a str) -> Axes<'a> {
        Axes { height: HEIGHT, across, up, across_scale: Scale::Linear, up_scale: Scale::Linear }
    }
}

/// What the script draws: all lines over one sequence of numbers, as uPlot takes them.
#[derive(Debug, Serialize)]
struct Drawing<'a> {
    height: u32,
    across: &'a str,
    up: &'a str,
    across_scale: Scale,
    up_scale: Scale,
    numbers: Vec<f64>,
    lines: Vec<Drawn<'a>>,
}

#[derive(Debug, Serialize)]
struct Drawn<'a> {
    name: &'a str,
    colour: &'static str,
    /// True from the second round of colours on.
    dashed: bool,
    /// `None`: the line has no point there.
    values: Vec<Option<f64>>,
}

/// What a browser still draws at once.
const VALUES_MAX: usize = 1_000_000;

/// Lines as a graph. A number that a logarithmic axis cannot show (zero and less) is left out.
///
/// # Errors
/// The points cannot be written as JSON.
pub fn graph(lines: &[Line<'_>], axes: &Axes<'_>) -> Result<String> {
    let fits = |&(x, y): &(f64, f64)| {
        let shows = |scale: Scale, number: f64| number.is_finite() && (scale == Scale::Linear || number > 0.0);
        shows(axes.across_scale, x) && shows(axes.up_scale, y)
    };
    let shown: Vec<Vec<(f64, f64)>> =
        lines.iter().map(|(_, points)| points.iter().copied().filter(fits).collect()).collect();
    let mut numbers: Vec<f64> = shown.iter().flatten().map(|&(x, _)| x).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    // Each line has a value for each number.
    let drawable = (VALUES_MAX / numbers.len().max(1)).max(1);
    let left_out = shown.len().saturating_sub(drawable);
    let drawn = |(ordinal, points): (usize, &Vec<(f64, f64)>)| {
        let mut values = vec![None; numbers.len()];
        for &(x, y) in points {
            if let Ok(place) = numbers.binary_search_by(|number| number.total_cmp(&x)) {
                values[place] = Some(y);
            }
        }
        let name = lines.get(ordinal).map_or("", |(name, _)| name);
        Drawn { name, colour: COLOURS[ordinal % COLOURS.len()], dashed: ordinal >= COLOURS.len(), values }
    };
    let drawing = Drawing {
        height: axes.height,
        across: axes.across,
        up: axes.up,
        across_scale: axes.across_scale,
        up_scale: axes.up_scale,
        lines: shown.iter().enumerate().take(drawable).map(drawn).collect(),
        numbers,
    };
    let told = match left_out {
        0 => String::new(),
        count => format!("<figcaption>{count} more lines are not drawn.</figcaption>"),
    };
    Ok(format!("{MARK}<script type=\"application/json\">{}</script>{told}</figure>", embedded(&drawing)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the script would read.
    fn read(html: &str) -> serde_json::Value {
        let json = html.strip_prefix(MARK).unwrap().strip_prefix("<script type=\"application/json\">").unwrap();
        serde_json::from_str(json.strip_suffix("</script></figure>").unwrap()).unwrap()
    }

    #[test]
    fn lines_with_different_numbers_share_one_axis() {
        let lines = [("a", vec![(1.0, 10.0), (3.0, 30.0)]), ("b", vec![(2.0, 5.0), (3.0, 6.0)])];
        let drawing = read(&graph(&lines, &Axes::new("seconds", "rows")).unwrap());
        assert_eq!(drawing["numbers"], serde_json::json!([1.0, 2.0, 3.0]));
        assert_eq!(drawing["lines"][0]["values"], serde_json::json!([10.0, null, 30.0]));
        assert_eq!(drawing["lines"][1]["values"], serde_json::json!([null, 5.0, 6.0]));
        assert_eq!(drawing["lines"][1]["name"], "b");
    }

    #[test]
    fn logarithmic_axis_leaves_zero_out() {
        let axes = Axes { up_scale: Scale::Decades, ..Axes::new("rate", "lag") };
        let drawing = read(&graph(&[("a", vec![(1.0, 0.0), (2.0, 4.0), (3.0, f64::NAN)])], &axes).unwrap());
        assert_eq!((&drawing["numbers"], &drawing["up_scale"]), (&serde_json::json!([2.0]), &"decades".into()));
    }

    #[test]
    fn more_than_a_browser_draws_is_left_out_and_told() {
        let line = |ordinal: usize| ("a", (0..2_000).map(|at| ((at * 500 + ordinal) as f64, 1.0)).collect());
        let lines: Vec<Line<'_>> = (0..30).map(line).collect();
        let html = graph(&lines, &Axes::new("a", "b")).unwrap();
        assert!(
            html.ends_with("<figcaption>14 more lines are not drawn.</figcaption></figure>") && html.len() < 10_000_000
        );
    }

    #[test]
    fn graph_of_nothing_is_empty() {
        assert_eq!(read(&graph(&[], &Axes::new("a", "b")).unwrap())["lines"], serde_json::json!([]));
    }
}
