//! Pages with tables and graphs for people: one HTML file that needs nothing else.

use plotters::prelude::*;
use serde::Serialize;
use thiserror::Error;

/// Width of a graph in pixels of a screen; a browser makes it fit.
const GRAPH_WIDTH: u32 = 960;

/// Colours that stay apart in print and for most colour-blind people, on light and on dark ground.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
    table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #ccc;text-align:right}\
    td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto;background:#fff}\
    pre{white-space:pre-wrap;font-size:12px}@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}}\
    @media print{body{max-width:none}}";

/// The result of this crate's functions.
pub type Result<T, E = PageError> = std::result::Result<T, E>;

/// A page that could not be made.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct PageError(String);

/// A whole page. `refresh_seconds`: a browser loads it again that often; `body` is HTML.
pub fn document(title: &str, heading: &str, refresh_seconds: Option<u32>, body: &str) -> String {
    let refresh = refresh_seconds.map(|seconds| format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">"));
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">{}<title>{}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body><h1>{}</h1>{body}</body></html>\n",
        refresh.unwrap_or_default(),
        escaped(title),
        escaped(heading)
    )
}

/// Text as HTML shows it.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table of texts.
pub fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut html = "<table><thead><tr>".to_owned();
    for title in header {
        html += &format!("<th>{}</th>", escaped(title));
    }
    html += "</tr></thead><tbody>";
    for row in rows {
        html += "<tr>";
        for cell in row {
            html += &format!("<td>{}</td>", escaped(&cell));
        }
        html += "</tr>";
    }
    html + "</tbody></table>"
}

/// All figures as JSON, folded away.
///
/// # Errors
/// They cannot be written as JSON.
pub fn figures(all: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string_pretty(all).map_err(|error| PageError(error.to_string()))?;
    Ok(format!("<details><summary>All figures</summary><pre>{}</pre></details>", escaped(&json)))
}

/// A line of a graph: its name, and its points.
pub type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// What a graph's axes say.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// The graph's height in pixels.
    pub height: u32,
    /// Along the lower edge.
    pub across: &'a str,
    /// Along the left edge.
    pub up: &'a str,
    /// The numbers along the lower edge double with each step.
    pub doubles: bool,
}

/// Lines as an SVG picture.
///
/// # Errors
/// It cannot be drawn.
pub fn graph(lines: &[Line<'_>], axes: &Axes<'_>) -> Result<String> {
    let scaled = |x: f64| if axes.doubles { x.max(1.0).log2() } else { x };
    let all = || lines.iter().flat_map(|(_, points)| points.iter());
    let last = all().map(|&(x, _)| scaled(x)).fold(1.0, f64::max);
    let highest = all().map(|&(_, y)| y).fold(1.0, f64::max) * 1.05;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (GRAPH_WIDTH, axes.height)).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..last, 0.0..highest)
            .map_err(drawing)?;
        let doubled = |x: &f64| format!("{:.0}", x.exp2());
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(axes.across).y_desc(axes.up).light_line_style(WHITE);
        if axes.doubles {
            mesh.x_labels(last as usize + 1).x_label_formatter(&doubled);
        }
        mesh.draw().map_err(drawing)?;
        for ((name, points), &colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let points = points.iter().map(|&(x, y)| (scaled(x), y));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(drawing)?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().map_err(drawing)?;
        root.present().map_err(drawing)?;
    }
    Ok(svg)
}

fn drawing<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> PageError {
    PageError(format!("a graph cannot be drawn: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: Axes<'_> = Axes { height: 300, across: "seconds", up: "seconds behind", doubles: false };

    #[test]
    fn graph_has_a_line_and_a_name_for_each() {
        let points: Vec<(f64, f64)> = (0..5).map(|number| (f64::from(number), f64::from(40 - 10 * number))).collect();
        let lines = [("native:0", points.clone()), ("native:0+prefetch", points)];
        for doubles in [false, true] {
            let svg = graph(&lines, &Axes { doubles, ..AXES }).unwrap();
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
            assert!(svg.contains("native:0+prefetch") && svg.matches("<polyline").count() >= 4, "{svg}");
        }
    }

    #[test]
    fn graph_of_nothing_is_empty() {
        assert!(graph(&[], &AXES).unwrap().contains("<svg"));
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<script>&"), "&lt;script&gt;&amp;");
        let html = table(&["a"], [vec!["<b>".to_owned()]].into_iter());
        assert!(html.contains("&lt;b&gt;"), "{html}");
    }
}
