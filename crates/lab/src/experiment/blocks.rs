//! The parts of a report: texts, tables, graphs, timelines; as HTML for a browser, as Markdown for a forge, as text for a terminal.

use spate_page::{Axes, Lane, Line, Scale, escaped};

use crate::screen;
use crate::{Error, Result};

/// Height of a graph in pixels of a screen.
const GRAPH_HEIGHT: u32 = 340;

/// A part of a report.
#[derive(Debug, Clone)]
pub enum Block {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// The verdict, larger than the rest.
    Verdict(String),
    /// A table.
    Table {
        /// What it shows.
        title: String,
        /// The columns' titles.
        header: Vec<String>,
        /// The rows.
        rows: Vec<Vec<String>>,
    },
    /// Lines over numbers.
    Graph(Graph),
    /// Bars over time.
    Timeline {
        /// What it shows.
        title: String,
        /// A lane for each actor.
        lanes: Vec<Lane>,
    },
    /// Parts that are folded away until somebody wants to see them.
    Folded {
        /// What they show.
        title: String,
        /// The parts.
        blocks: Vec<Block>,
    },
}

/// Lines over numbers.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// What it shows.
    pub title: String,
    /// Along the lower edge.
    pub across: String,
    /// Along the left edge.
    pub up: String,
    /// How the lower edge counts.
    pub across_scale: Scale,
    /// How the left edge counts.
    pub up_scale: Scale,
    /// The lines, by name.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Block {
    /// A table whose header is of constant words.
    pub fn table(title: &str, header: &[&str], rows: Vec<Vec<String>>) -> Block {
        Block::Table { title: title.to_owned(), header: header.iter().map(|&word| word.to_owned()).collect(), rows }
    }

    /// As HTML.
    ///
    /// # Errors
    /// [`Error::Report`].
    fn to_html(&self) -> Result<String> {
        Ok(match self {
            Block::Heading(text) => format!("<h2>{}</h2>", escaped(text)),
            Block::Text(text) => format!("<p>{}</p>", escaped(text)),
            Block::Verdict(text) => format!("<p class=\"verdict\"><strong>{}</strong></p>", escaped(text)),
            Block::Table { title, header, rows } => {
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                format!("<h3>{}</h3>{}", escaped(title), spate_page::table(&header, rows.iter().cloned()))
            }
            Block::Graph(graph) => graph.to_html()?,
            Block::Timeline { title, lanes } => {
                format!("<h3>{}</h3>{}", escaped(title), spate_page::timeline(lanes, "seconds"))
            }
            Block::Folded { title, blocks } => {
                format!("<details class=\"part\"><summary>{}</summary>{}</details>", escaped(title), to_html(blocks)?)
            }
        })
    }

    /// As Markdown: what a forge shows without a script. Graphs are in the HTML report.
    fn to_markdown(&self) -> String {
        match self {
            Block::Heading(text) => format!("## {}\n\n", markdown(text)),
            Block::Text(text) => format!("{}\n\n", markdown(text)),
            Block::Verdict(text) => format!("**{}**\n\n", markdown(text)),
            Block::Table { title, header, rows } => {
                let line = |cells: &[String]| {
                    let cells: Vec<String> = cells.iter().map(|cell| markdown(cell).replace('|', "\\|")).collect();
                    format!("| {} |\n", cells.join(" | "))
                };
                let mut text = format!("{}\n\n{}|", markdown(title), line(header));
                text += &header
                    .iter()
                    .enumerate()
                    .map(|(place, _)| if place == 0 { " --- |" } else { " ---: |" })
                    .collect::<String>();
                text.push('\n');
                rows.iter().for_each(|row| text += &line(row));
                text + "\n"
            }
            Block::Folded { title, blocks } => match to_markdown(blocks) {
                text if text.is_empty() => text,
                text => format!("<details><summary>{}</summary>\n\n{text}</details>\n\n", escaped(title)),
            },
            Block::Graph(_) | Block::Timeline { .. } => String::new(),
        }
    }

    /// For a terminal.
    fn to_text(&self) -> String {
        match self {
            Block::Heading(text) => format!("\n{text}\n"),
            Block::Text(_) | Block::Graph(_) | Block::Timeline { .. } | Block::Folded { .. } => String::new(),
            Block::Verdict(text) => format!("{text}\n"),
            Block::Table { title, header, rows } => {
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                format!("{title}\n{}\n", screen::table(&header, 1, rows.clone()))
            }
        }
    }
}

/// A text that a forge shows as it is, in one line.
fn markdown(text: &str) -> String {
    screen::harmless(text).replace(['\n', '\t'], " ").replace('<', "&lt;")
}

impl Graph {
    fn to_html(&self) -> Result<String> {
        let lines: Vec<Line<'_>> = self.lines.iter().map(|(name, points)| (name.as_str(), points.clone())).collect();
        let axes = Axes {
            height: GRAPH_HEIGHT,
            across_scale: self.across_scale,
            up_scale: self.up_scale,
            ..Axes::new(&self.across, &self.up)
        };
        let graph = spate_page::graph(&lines, &axes).map_err(Error::Report)?;
        Ok(format!("<h3>{}</h3>{graph}", escaped(&self.title)))
    }
}

/// All parts as HTML.
///
/// # Errors
/// [`Error::Report`].
pub fn to_html(blocks: &[Block]) -> Result<String> {
    blocks.iter().map(Block::to_html).collect()
}

/// All parts as Markdown.
pub fn to_markdown(blocks: &[Block]) -> String {
    blocks.iter().map(Block::to_markdown).collect()
}

/// Headings, verdicts and tables for a terminal.
pub fn to_text(blocks: &[Block]) -> String {
    blocks.iter().map(Block::to_text).collect()
}

/// A time as the originals write it: `h:mm.ss`.
pub fn hours_minutes_seconds(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    format!("{}:{:02}.{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_originals_write_them() {
        for (seconds, text) in [(0.4, "0:00.00"), (59.6, "0:01.00"), (3_725.0, "1:02.05"), (36_000.0, "10:00.00")] {
            assert_eq!(hours_minutes_seconds(seconds), text);
        }
    }

    #[test]
    fn table_has_the_same_cells_everywhere() {
        let block = Block::table("Times", &["contender", "s"], vec![vec!["a|b <i>".into(), "1.5".into()]]);
        let blocks = [block];
        assert!(
            to_markdown(&blocks).contains("| a\\|b &lt;i> | 1.5 |") && to_markdown(&blocks).contains("| --- | ---: |")
        );
        assert!(to_html(&blocks).unwrap().contains("<td>a|b &lt;i&gt;</td><td>1.5</td>"));
        assert!(to_text(&blocks).contains("1.5"));
    }

    #[test]
    fn graphs_are_only_in_the_page() {
        let blocks = [Block::Graph(Graph {
            title: "Lag".into(),
            lines: vec![("a".into(), vec![(0.0, 1.0)])],
            ..Graph::default()
        })];
        assert!(to_html(&blocks).unwrap().contains("<figure class=\"graph\">"));
        assert_eq!((to_markdown(&blocks), to_text(&blocks)), (String::new(), String::new()));
    }
}
