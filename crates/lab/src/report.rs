//! A race as a page for people: one HTML file that needs nothing else, with what each contender did and how its lag fell.

use std::path::Path;

use plotters::prelude::*;

use crate::lag_samples::LagSample;
use crate::results::RaceResult;
use crate::{Error, Result};

/// Size of the graph in pixels of a screen; a browser makes it fit.
const GRAPH_SIZE: (u32, u32) = (960, 420);

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

/// Writes the report of a race that has ended.
///
/// # Errors
/// [`Error::File`], [`Error::Report`].
pub fn write(result: &RaceResult, path: &Path) -> Result<()> {
    write_page(&page(result, None)?, path)
}

/// Writes the report of a race that still runs: a browser loads it again every two seconds.
///
/// # Errors
/// As [`write()`].
pub fn write_live(result: &RaceResult, running: &str, samples: &[LagSample], path: &Path) -> Result<()> {
    write_page(&page(result, Some((running, samples)))?, path)
}

/// Whoever reads the file finds the old page or the new one.
fn write_page(page: &str, path: &Path) -> Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, page).map_err(Error::file("write", &new))?;
    std::fs::rename(&new, path).map_err(Error::file("write", path))
}

fn page(result: &RaceResult, running: Option<(&str, &[LagSample])>) -> Result<String> {
    let mut lines: Vec<(&str, &[LagSample])> =
        result.contenders.iter().map(|contender| (&*contender.name, &*contender.seconds_behind)).collect();
    lines.extend(running);
    let (refresh, state) = match running {
        Some((name, _)) => ("<meta http-equiv=\"refresh\" content=\"2\">", format!("{name} is catching up …")),
        None => ("", "All contenders have run.".to_owned()),
    };
    let mut html = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">{refresh}<title>Spate: a catch-up race</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body><h1>A catch-up race</h1>\
         <p>{}</p><p>{}</p>",
        escaped(&result.summary()),
        escaped(&state)
    );
    html += &table(result);
    html += "<h2>Seconds behind the source</h2>\
             <p>Of native replication as the server says it (Seconds_Behind_Source), of Spate the age of the last transaction that its \
             checkpoint holds; both less the time for which the source has been idle since the backlog's end. Asked four times a second.</p>";
    html += &graph(&lines)?;
    let json = serde_json::to_string_pretty(result).map_err(|error| Error::Report(error.to_string()))?;
    let json = escaped(&json);
    Ok(format!("{html}<details><summary>All figures</summary><pre>{json}</pre></details></body></html>\n"))
}

fn table(result: &RaceResult) -> String {
    let mut html = "<table><thead><tr><th>contender</th><th>seconds</th><th>× best native</th><th>replica CPU s</th>\
                    <th>tables</th></tr></thead><tbody>"
        .to_owned();
    for contender in &result.contenders {
        let seconds = contender.seconds.map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.2}"));
        let ratio = result.ratio_vs_best_native.get(&contender.name);
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let tables = if contender.identical { "identical" } else { "DIFFERENT" };
        let (name, cpu) = (escaped(&contender.name), contender.server_cpu_seconds);
        html +=
            &format!("<tr><td>{name}</td><td>{seconds}</td><td>{ratio}</td><td>{cpu:.1}</td><td>{tables}</td></tr>");
    }
    html + "</tbody></table>"
}

/// The lag of each contender over its time, as an SVG picture.
fn graph(lines: &[(&str, &[LagSample])]) -> Result<String> {
    let all = || lines.iter().flat_map(|(_, samples)| samples.iter());
    let last = all().map(|sample| sample.seconds).fold(1.0, f64::max);
    let highest = all().map(|sample| sample.behind_seconds).max().unwrap_or(0).max(1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, GRAPH_SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..last, 0.0..highest as f64 * 1.05)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc("seconds of catching up")
            .y_desc("seconds behind")
            .light_line_style(WHITE)
            .draw()
            .map_err(drawing)?;
        for (&(name, samples), &colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let points = samples.iter().map(|sample| (sample.seconds, sample.behind_seconds as f64));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(drawing)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().map_err(drawing)?;
        root.present().map_err(drawing)?;
    }
    Ok(svg)
}

fn drawing<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> Error {
    Error::Report(error.to_string())
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<LagSample> {
        (0..5).map(|number| LagSample { seconds: f64::from(number), behind_seconds: 40 - 10 * number as u64 }).collect()
    }

    #[test]
    fn graph_has_a_line_and_a_name_for_each_contender() {
        let samples = samples();
        let svg = graph(&[("native:0", &samples), ("native:0+prefetch", &samples)]).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("native:0+prefetch") && svg.matches("<polyline").count() >= 4, "{svg}");
    }

    #[test]
    fn graph_of_nothing_is_empty() {
        assert!(graph(&[]).unwrap().contains("<svg"));
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<script>&"), "&lt;script&gt;&amp;");
    }
}
