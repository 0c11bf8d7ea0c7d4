//! Pages with tables and graphs for people: one HTML file that needs nothing else, neither a network nor another file.
//!
//! - [`document`], [`table`], [`figures`]: a page and its parts;
//! - [`graph`]: lines over numbers, with a value under the pointer, zoom by dragging (drawn by uPlot, whose text is part of the page);
//! - [`timeline`]: bars over time, with a name under the pointer, zoom by dragging.

mod graph;
mod timeline;

use serde::Serialize;
use thiserror::Error;

pub use graph::{Axes, Line, Scale, graph};
pub use timeline::{Bar, Lane, timeline};

/// Colours that stay apart in print and for most colour-blind people, on light and on dark ground.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
    table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #ccc;text-align:right}\
    td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}figure{margin:1rem 0}\
    .verdict{font-size:1.15em}figcaption{font-size:14px}.wide{overflow-x:auto}\
    pre{white-space:pre-wrap;font-size:12px}@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}td,th{border-color:#555}}\
    @media print{body{max-width:none;color:#000;background:#fff}figure,tr{break-inside:avoid}}";

/// The result of this crate's functions.
pub type Result<T, E = PageError> = std::result::Result<T, E>;

/// A page that could not be made.
#[derive(Debug, Error)]
#[error("figures cannot be written as JSON: {0}")]
pub struct PageError(#[from] serde_json::Error);

/// A whole page. `refresh_seconds`: a browser loads it again that often; `body` is HTML.
pub fn document(title: &str, heading: &str, refresh_seconds: Option<u32>, body: &str) -> String {
    let refresh = refresh_seconds.map(|seconds| format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">"));
    let style = if body.contains(graph::MARK) { graph::STYLE } else { "" };
    let mut scripts = Vec::new();
    if body.contains(graph::MARK) {
        scripts.extend([graph::UPLOT, graph::SCRIPT]);
    }
    if body.contains(timeline::MARK) {
        scripts.push(timeline::SCRIPT);
    }
    let script = if scripts.is_empty() { String::new() } else { format!("<script>{}</script>", scripts.concat()) };
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">{}<title>{}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{style}{STYLE}</style></head><body><h1>{}</h1>{body}{script}</body></html>\n",
        refresh.unwrap_or_default(),
        escaped(title),
        escaped(heading)
    )
}

/// Text as HTML shows it.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table of texts. One that is wider than the page is moved sideways by itself.
pub fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut html = "<div class=\"wide\"><table><thead><tr>".to_owned();
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
    html + "</tbody></table></div>"
}

/// All figures as JSON, folded away.
///
/// # Errors
/// They cannot be written as JSON.
pub fn figures(all: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string_pretty(all)?;
    Ok(format!("<details><summary>All figures</summary><pre>{}</pre></details>", escaped(&json)))
}

/// All figures as JSON without spaces, folded away: for programs, which find it in the page.
///
/// # Errors
/// They cannot be written as JSON.
pub fn raw_figures(all: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string(all)?;
    Ok(format!(
        "<details><summary>All figures, as JSON</summary><pre class=\"figures\">{}</pre></details>",
        escaped(&json)
    ))
}

/// Figures as JSON in a script element, which a page's programs read: no text in them can end the element.
fn embedded(all: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(all)?.replace('<', "\\u003c"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<script>&"), "&lt;script&gt;&amp;");
        let html = table(&["a"], [vec!["<b>".to_owned()]].into_iter());
        assert!(html.contains("&lt;b&gt;"), "{html}");
        assert_eq!(embedded(&"</script><!--").unwrap(), "\"\\u003c/script>\\u003c!--\"");
    }

    #[test]
    fn page_without_graphs_has_no_script() {
        assert!(!document("a", "b", None, "<p>c</p>").contains("<script"));
    }

    #[test]
    fn page_reaches_for_nothing_outside_itself() {
        let axes = Axes::new("seconds", "rows");
        let lanes = [Lane { name: "a".into(), bars: vec![Bar { begin: 0.0, end: 1.0, name: "b".into(), kind: 0 }] }];
        let body = graph(&[("a", vec![(0.0, 1.0)])], &axes).unwrap() + &timeline(&lanes, "seconds");
        let page = document("a", "b", None, &body);
        assert!(page.contains("svg.bars"), "the timelines' script is there");
        for word in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
