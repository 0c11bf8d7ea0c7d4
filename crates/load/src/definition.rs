//! The text of SHOW CREATE TABLE, taken apart: one line for each column and index, with names in backticks and texts in quotes.

/// The lines of SHOW CREATE TABLE, by what they define.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Columns, the primary key and unique keys.
    pub(crate) fixed: Vec<String>,
    /// Other indexes.
    pub(crate) indexes: Vec<String>,
}

impl Shape {
    pub(crate) fn of(definition: &str) -> Shape {
        let mut shape = Shape::default();
        // A server wants an index for the column that it counts up.
        let counted =
            definition.lines().find(|line| line.trim_start().starts_with('`') && line.contains(" AUTO_INCREMENT"));
        let counted = counted.and_then(index_name).map(|name| format!("({name}"));
        for line in definition.lines().skip(1) {
            let line = line.trim().trim_end_matches(',').to_owned();
            let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(word));
            if counted.as_ref().is_some_and(|counted| line.contains(counted.as_str()) && line.starts_with("KEY ")) {
                shape.fixed.push(line);
            } else if begins(&["KEY ", "FULLTEXT KEY ", "SPATIAL KEY ", "VECTOR KEY "]) {
                shape.indexes.push(line);
            } else if begins(&["`", "PRIMARY KEY ", "UNIQUE KEY "]) {
                shape.fixed.push(line);
            }
        }
        shape
    }
}

/// The name in a line that defines an index, in its backticks.
pub(crate) fn index_name(line: &str) -> Option<String> {
    let begin = line.find('`')?;
    let end = end_of_quoted(line.as_bytes(), begin)?;
    Some(line[begin..=end].to_owned())
}

/// True if a text defines one index and nothing else, as SHOW CREATE TABLE writes it.
pub(crate) fn is_one_index(definition: &str) -> bool {
    let begins =
        ["KEY `", "FULLTEXT KEY `", "SPATIAL KEY `", "VECTOR KEY `"].iter().any(|word| definition.starts_with(word));
    if !begins || definition.contains(char::is_control) {
        return false;
    }
    let bytes = definition.as_bytes();
    let (mut depth, mut at) = (0_i64, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'`' | b'\'' => match end_of_quoted(bytes, at) {
                Some(end) => at = end,
                None => return false,
            },
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' | b';' | b'#' if depth == 0 => return false,
            b'-' if bytes.get(at + 1) == Some(&b'-') => return false,
            // MySQL writes what older servers do not know so.
            b'/' if bytes.get(at + 1) == Some(&b'*') && bytes.get(at + 2) != Some(&b'!') => return false,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
        at += 1;
    }
    depth == 0
}

/// Where a quoted text that begins at `at` ends: the place of its last quote.
fn end_of_quoted(bytes: &[u8], at: usize) -> Option<usize> {
    let quote = bytes[at];
    let mut next = at + 1;
    loop {
        let byte = *bytes.get(next)?;
        match byte {
            b'\\' if quote == b'\'' => next += 1,
            _ if byte == quote && bytes.get(next + 1) == Some(&quote) => next += 1,
            _ if byte == quote => return Some(next),
            _ => {}
        }
        next += 1;
    }
}

/// True if a name in a definition has the end of a line in it, so that its lines are not what they seem.
pub(crate) fn has_broken_names(definition: &str) -> bool {
    let bytes = definition.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if matches!(byte, b'`' | b'\'') {
            let Some(end) = end_of_quoted(bytes, at) else { return true };
            if bytes[at..end].iter().any(u8::is_ascii_control) {
                return true;
            }
            at = end;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_hold_what_a_load_depends_on() {
        let shape = Shape::of(
            "CREATE TABLE `t` (\n  `id` int(11) NOT NULL,\n  `a``b` varchar(9) DEFAULT 'KEY ',\n  PRIMARY KEY (`id`),\n  \
             UNIQUE KEY `u` (`a``b`),\n  KEY `k``1` (`a``b`(3)) COMMENT 'x',\n  FULLTEXT KEY `f` (`a``b`)\n) ENGINE=InnoDB",
        );
        assert_eq!(shape.fixed.len(), 4);
        assert_eq!(shape.indexes, ["KEY `k``1` (`a``b`(3)) COMMENT 'x'", "FULLTEXT KEY `f` (`a``b`)"]);
        assert_eq!(index_name(&shape.indexes[0]).unwrap(), "`k``1`");
    }

    #[test]
    fn one_index_is_one_index() {
        for fine in [
            "KEY `a` (`b`)",
            "KEY `a``,` (`b`(3),`c` DESC) USING BTREE COMMENT 'it''s, \\' fine'",
            "FULLTEXT KEY `f` (`a`) /*!80000 INVISIBLE */",
        ] {
            assert!(is_one_index(fine), "{fine}");
        }
        for wrong in [
            "KEY `a` (`b`), RENAME TO `x`",
            "KEY `a` (`b`) # x",
            "KEY `a` (`b`) -- x",
            "KEY `a` (`b`) /* x */",
            "KEY `a` (`b`",
            "KEY `a\n` (`b`)",
            "PRIMARY KEY (`a`)",
            "DROP COLUMN `a`",
            "KEY `a` (`b`)); DROP TABLE x",
        ] {
            assert!(!is_one_index(wrong), "{wrong}");
        }
        assert!(has_broken_names("CREATE TABLE `t` (\n  `a\nKEY x` int\n)"));
        assert!(!has_broken_names("CREATE TABLE `t` (\n  `a` int COMMENT 'it''s \\' so'\n)"));
    }
}
